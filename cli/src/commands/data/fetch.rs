//! The command `ata data fetch`: downloads and verifies the official archive of CIFAR-100.
//!
//! The archive is written to `NAME.partial`, which is renamed after its SHA-256 has been verified.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::time::Duration;

use ata_data::{Images, Split, hex, sha256_of_file};
use indicatif::DecimalBytes;
use serde::Serialize;
use ureq::http::Uri;
use ureq::{Agent, Timeout};

use crate::args::FetchArgs;
use crate::failure::{Failure, require};
use crate::output::{Counter, note, print};
use crate::shell::word;

/// The name of the archive in the documentation of `--data`, whatever its name in the URL.
const FILE_NAME: &str = "cifar-100-binary.tar.gz";
/// The longest time for finding a server and connecting to it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time without data, after which a connection counts as broken.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest size of a download: the official archive has 169 MB, and a much larger file is something else.
const MAX_BYTES: u64 = 1 << 30;

#[derive(Serialize)]
struct FetchedFile<'a> {
    path: &'a Path,
    bytes: u64,
    sha256: &'a str,
}

pub(super) fn run(args: FetchArgs) -> Result<(), Failure> {
    check_url(&args.url)?;
    let folder = args.folder.unwrap_or_default();
    std::fs::create_dir_all(&folder)
        .map_err(|cause| Failure::disk(format!("cannot create {}: {cause}. Give another folder", folder.display())))?;
    let path = folder.join(FILE_NAME);
    if path.exists() {
        let (name, expected) = (path.display(), &args.sha256);
        note!("{name} is there already; checking it");
        check(&path, expected, |found| {
            format!(
                "{name} exists and is another file: expected sha256 {expected}, found {found}. Move it, or give another folder"
            )
        })?;
    } else {
        fetch(&path, &args.url, &args.sha256)?;
    }
    let unpacked = Images::folder(&path)?;
    let splits = [super::check(&unpacked, Split::Train)?, super::check(&unpacked, Split::Test)?];
    let bytes = path.metadata().map_err(|cause| Failure::disk(format!("{}: {cause}", path.display())))?.len();
    let sha256 = &args.sha256;
    print(args.json, &FetchedFile { path: &path, bytes, sha256 }, || {
        format!(
            "{}: {bytes} bytes, sha256 {sha256}\n{}\ntrain with it: ata up --data {} --iterations 1000 --lr 1e-3\n",
            path.display(),
            splits.join("\n"),
            word(&path)
        )
    })
}

fn check_url(url: &str) -> Result<(), Failure> {
    let expected = "expected http://HOST/PATH or https://HOST/PATH";
    let uri: Uri = url.parse().map_err(|cause| Failure::usage(format!("--url {url}: {cause}; {expected}")))?;
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    require(matches!(uri.scheme_str(), Some("http" | "https")) && has_host, || format!("--url {url}: {expected}"))
}

/// Checks the SHA-256 of a file.
fn check(path: &Path, expected: &str, message: impl FnOnce(&str) -> String) -> Result<(), Failure> {
    let found = hex(&sha256_of_file(path)?);
    if found == expected { Ok(()) } else { Err(Failure::data(message(&found))) }
}

/// Downloads the archive to a file next to `path`, and renames it after its SHA-256 has been verified.
fn fetch(path: &Path, url: &str, expected: &str) -> Result<(), Failure> {
    let partial = path.with_added_extension("partial");
    let mut file = File::create(&partial).map_err(|cause| cannot_write(&partial, &cause))?;
    let fetched = download(url, |bytes| file.write_all(bytes).map_err(|cause| cannot_write(&partial, &cause)))
        .and_then(|()| file.sync_all().map_err(|cause| cannot_write(&partial, &cause)))
        .and_then(|()| {
            note!("checking it");
            check(&partial, expected, |found| {
                format!(
                    "{url}: expected sha256 {expected}, found {found}. The download is removed: run the command again, or set \
                     --sha256 if you want another archive"
                )
            })
        });
    if fetched.is_err() {
        // An error is ignored: the next download overwrites the partial file.
        std::fs::remove_file(&partial).unwrap_or(());
        return fetched;
    }
    std::fs::rename(&partial, path).map_err(|cause| cannot_write(path, &cause))
}

fn cannot_write(path: &Path, cause: &std::io::Error) -> Failure {
    let name = path.display();
    Failure::disk(format!("cannot write {name}: {cause}. Fix that and run the command again, or give another folder"))
}

fn agent() -> Agent {
    Agent::config_builder()
        .user_agent(concat!("ata/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .timeout_resolve(Some(CONNECT_TIMEOUT))
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(STALL_TIMEOUT))
        .timeout_per_read(Some(STALL_TIMEOUT))
        .timeout_per_write(Some(STALL_TIMEOUT))
        .build()
        .into()
}

/// Passes the response's body to `write`, piece by piece.
fn download(url: &str, mut write: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let response = agent().get(url).call().map_err(|error| unreachable(url, &describe(&error), "Check the network"))?;
    if response.status().as_u16() != 200 {
        let status = response.status();
        return Err(Failure::unreachable(format!("{url}: the server answers {status}. Give a mirror with --url")));
    }
    let total = response.body().content_length();
    if let Some(bytes) = total.filter(|total| *total > MAX_BYTES) {
        return Err(too_large(url, bytes));
    }
    note!("downloading {url}{}", total.map_or(String::new(), |total| format!(" ({})", DecimalBytes(total))));
    let progress = Counter::of_bytes("downloaded", total);
    let received = receive(url, response.into_body().into_reader(), |bytes| {
        progress.add(bytes.len() as u64);
        write(bytes)
    });
    progress.finish();
    received
}

fn receive(url: &str, mut body: impl Read, mut write: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let (mut held, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let read = match body.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
            Err(cause) => return Err(unreachable(url, &describe(&ureq::Error::from(cause)), "Try again")),
        };
        held += read as u64;
        if held > MAX_BYTES {
            return Err(too_large(url, held));
        }
        write(&buffer[..read])?;
    }
}

fn too_large(url: &str, bytes: u64) -> Failure {
    Failure::data(format!("{url}: the server sends {bytes} bytes, expected {MAX_BYTES} at most. Is the --url right?"))
}

fn unreachable(url: &str, cause: &str, remedy: &str) -> Failure {
    Failure::unreachable(format!("{url}: {cause}. {remedy}, or give a mirror with --url"))
}

fn describe(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(cause) if cause.kind() == ErrorKind::UnexpectedEof => "the connection ended early".into(),
        ureq::Error::Io(cause) => cause.to_string(),
        ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
            format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())
        }
        ureq::Error::Timeout(_) => format!("nothing was received for {} s", STALL_TIMEOUT.as_secs()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server does not announce the length of its response.
    #[test]
    fn a_download_without_end_is_given_up() {
        let mut written = 0;
        let given_up = receive("http://mirror", std::io::repeat(7), |bytes| {
            written += bytes.len() as u64;
            Ok(())
        });
        assert!(given_up.unwrap_err().to_string().contains("expected 1073741824 at most"));
        assert!(written <= MAX_BYTES);
    }
}
