//! `ata data fetch`: the official archive of CIFAR-100, downloaded and verified.
//!
//! The archive is written to `NAME.partial`, which is renamed once its SHA-256 is right. After a broken connection, and in a
//! later command, the server is asked for what follows the bytes that are there. The SHA-256 decides whether the parts fit.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ata_learn::{Images, Split, hex, sha256_of_file};
use indicatif::DecimalBytes;
use serde::Serialize;
use ureq::http::{Uri, header};
use ureq::{Agent, Timeout};

use crate::args::FetchArgs;
use crate::failure::Failure;
use crate::output::{Counter, Output, escaped, note};

/// The name that `--data` has in the documentation, whatever the URL calls the archive.
const FILE_NAME: &str = "cifar-100-binary.tar.gz";
/// No server takes longer to be found and to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection on which nothing moves for this long is broken.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait before another connection; the first one is 1 s.
const MAX_WAIT_S: u64 = 60;
/// The official archive has 169 MB; a much longer one is something else.
const MAX_BYTES: u64 = 1 << 30;

/// A data set that was downloaded and checked.
#[derive(Serialize)]
struct FetchedFile<'a> {
    path: &'a Path,
    bytes: u64,
    sha256: &'a str,
    /// Descriptions of its splits.
    #[serde(skip)]
    splits: Vec<String>,
}

impl Output for FetchedFile<'_> {
    fn text(&self) -> String {
        let Self { path, bytes, sha256, splits } = self;
        format!(
            "{}: {bytes} bytes, sha256 {sha256}\n{}\ntrain with it: ata up --data {} --iterations 1000 --lr 1e-3\n",
            path.display(),
            splits.join("\n"),
            quoted(path)
        )
    }
}

pub(super) fn run(args: FetchArgs) -> Result<(), Failure> {
    check_url(&args.url)?;
    let folder = args.folder.unwrap_or_default();
    std::fs::create_dir_all(&folder)
        .map_err(|cause| Failure::disk(format!("cannot create {}: {cause}. Give another folder", folder.display())))?;
    let path = folder.join(FILE_NAME);
    if path.exists() {
        note!("{} is there already; checking it", path.display());
        check_existing(&path, &args.sha256)?;
    } else {
        fetch(&path, &args.url, &args.sha256, args.retries)?;
    }
    let unpacked = Images::folder(&path)?;
    let splits = [super::check(&unpacked, Split::Train)?, super::check(&unpacked, Split::Test)?];
    let bytes = path.metadata().map_err(|cause| Failure::disk(format!("{}: {cause}", path.display())))?.len();
    FetchedFile { path: &path, bytes, sha256: &args.sha256, splits: splits.into() }.print(args.json)
}

fn check_url(url: &str) -> Result<(), Failure> {
    let expected = "expected http://HOST/PATH or https://HOST/PATH";
    let uri: Uri = url.parse().map_err(|cause| Failure::usage(format!("--url {url}: {cause}; {expected}")))?;
    if matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty()) {
        Ok(())
    } else {
        Err(Failure::usage(format!("--url {url}: {expected}")))
    }
}

/// Accepts the archive itself, and refuses another file of its name, which is not ours to replace.
fn check_existing(path: &Path, expected: &str) -> Result<(), Failure> {
    let found = hex(&sha256_of_file(path)?);
    if found == expected {
        return Ok(());
    }
    let name = path.display();
    Err(Failure::data(format!(
        "{name} exists and is another file: expected sha256 {expected}, found {found}. Move it, or give another folder"
    )))
}

/// Downloads the archive next to its path, and moves it there once its SHA-256 is right.
fn fetch(path: &Path, url: &str, expected: &str, retries: u32) -> Result<(), Failure> {
    let partial = path.with_added_extension("partial");
    let file = open(&partial)?;
    let mut download = Download { url, agent: agent(), answered: false, partial, file };
    let outcome = download.run(retries);
    let Download { partial, file, .. } = download;
    drop(file);
    if let Err(failure) = outcome {
        if partial.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            remove(&partial)?;
        }
        return Err(failure);
    }
    note!("checking it");
    let found = hex(&sha256_of_file(&partial)?);
    if found != expected {
        remove(&partial)?;
        return Err(Failure::data(format!(
            "{url}: expected sha256 {expected}, found {found}. The download is removed: run the command again, or set \
             --sha256 if you want another archive"
        )));
    }
    std::fs::rename(&partial, path)
        .map_err(|cause| Failure::disk(format!("cannot rename {}: {cause}", partial.display())))
}

/// Opens the file that an earlier download left, or else an empty one, which no other process may fill meanwhile.
fn open(partial: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(partial);
    let file = file.map_err(|cause| cannot_write(partial, &cause))?;
    // Some file systems have no locks.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let name = partial.display();
        return Err(Failure::disk(format!("{name}: another `ata data fetch` is filling it; wait until it is done")));
    }
    Ok(file)
}

fn remove(path: &Path) -> Result<(), Failure> {
    std::fs::remove_file(path)
        .map_err(|cause| Failure::disk(format!("cannot remove {}: {cause}. Remove it yourself", path.display())))
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

/// A download that continues after broken connections.
struct Download<'a> {
    url: &'a str,
    agent: Agent,
    /// Whether there was any answer yet. If not, a wrong address is likelier than a passing fault.
    answered: bool,
    partial: PathBuf,
    file: File,
}

/// How a request ended.
enum Outcome {
    Complete,
    /// The connection broke, for this reason.
    Broken(String),
}

impl Download<'_> {
    /// Fills the file, with up to `retries` connections in a row that bring nothing new.
    fn run(&mut self, retries: u32) -> Result<(), Failure> {
        let (mut farthest, mut tried) = (self.held()?, 0);
        loop {
            let Outcome::Broken(cause) = self.request()? else {
                return self.file.sync_all().map_err(|cause| cannot_write(&self.partial, &cause));
            };
            let held = self.held()?;
            if held > farthest {
                (farthest, tried) = (held, 0);
            }
            if !self.answered || tried == retries {
                return Err(self.give_up(&cause, held));
            }
            let wait_s = 2_u64.saturating_pow(tried).min(MAX_WAIT_S);
            tried += 1;
            note!("{}; trying again in {wait_s} s", escaped(&cause));
            std::thread::sleep(Duration::from_secs(wait_s));
        }
    }

    /// Bytes that are there; the next ones are written behind them.
    fn held(&mut self) -> Result<u64, Failure> {
        self.file.seek(SeekFrom::End(0)).map_err(|cause| cannot_write(&self.partial, &cause))
    }

    fn clear(&mut self) -> Result<(), Failure> {
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(|cause| cannot_write(&self.partial, &cause))
    }

    /// Asks for what the file lacks, and appends it.
    fn request(&mut self) -> Result<Outcome, Failure> {
        let (url, mut held) = (self.url, self.held()?);
        let mut request = self.agent.get(url);
        if held > 0 {
            request = request.header(header::RANGE, format!("bytes={held}-"));
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(error) => return Ok(Outcome::Broken(describe(&error))),
        };
        self.answered = true;
        let status = response.status();
        match status.as_u16() {
            200 if held > 0 => {
                self.clear()?;
                held = 0;
            }
            200 => {}
            206 if held > 0 => {}
            // Nothing is missing, or the file does not fit, which its SHA-256 will tell.
            416 if held > 0 => return Ok(Outcome::Complete),
            408 | 429 | 500 | 502..=504 => return Ok(Outcome::Broken(format!("the server answers {status}"))),
            _ => {
                let message = format!("{url}: the server answers {status}. Give a mirror with --url");
                return Err(Failure::unreachable(message));
            }
        }
        let total = response.body().content_length().map(|rest| held + rest);
        if let Some(bytes) = total.filter(|total| *total > MAX_BYTES) {
            return Err(self.too_large(bytes));
        }
        let size = total.map_or(String::new(), |total| format!(" ({})", DecimalBytes(total)));
        match held {
            0 => note!("downloading {url}{size}"),
            held => note!("continuing {url}{size} after {}", DecimalBytes(held)),
        }
        let progress = Counter::of_bytes("downloaded", held, total);
        let outcome = self.receive(response.into_body().into_reader(), held, &progress);
        progress.finish();
        outcome
    }

    fn receive(&mut self, mut body: impl Read, mut held: u64, progress: &Counter) -> Result<Outcome, Failure> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => return Ok(Outcome::Complete),
                Ok(read) => read,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
                Err(cause) => return Ok(Outcome::Broken(describe(&ureq::Error::from(cause)))),
            };
            held += read as u64;
            if held > MAX_BYTES {
                self.clear()?;
                return Err(self.too_large(held));
            }
            self.file.write_all(&buffer[..read]).map_err(|cause| cannot_write(&self.partial, &cause))?;
            progress.add(read as u64);
        }
    }

    fn too_large(&self, bytes: u64) -> Failure {
        let url = self.url;
        let message =
            format!("{url}: the server sends {bytes} bytes, expected {MAX_BYTES} at most. Is the --url right?");
        Failure::data(message)
    }

    fn give_up(&self, cause: &str, held: u64) -> Failure {
        let url = self.url;
        let (problem, remedy) = if self.answered {
            ("the download broke off", "Try again later")
        } else {
            ("unreachable", "Check the network")
        };
        let kept = match held {
            0 => String::new(),
            held => {
                let (name, held) = (self.partial.display(), DecimalBytes(held));
                format!(". {name} is kept: the same command continues after {held}")
            }
        };
        Failure::unreachable(format!("{url}: {problem}: {cause}. {remedy}, or give a mirror with --url{kept}"))
    }
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

/// The path as one word of a command line.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |character: char| character.is_alphanumeric() || "/\\._-+:".contains(character);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked() {
        for url in ["http://mirror/a.tar.gz", "https://mirror:8443/~kriz/a?b=c", "http://[::1]:80"] {
            assert!(check_url(url).is_ok(), "{url}");
        }
        for url in ["", "mirror/a.tar.gz", "ftp://mirror/a.tar.gz", "http://", "http:///a", "http://mirror/a b"] {
            assert!(check_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn paths_with_blanks_stay_one_word() {
        assert_eq!(quoted(Path::new("data/cifar-100-binary.tar.gz")), "data/cifar-100-binary.tar.gz");
        assert_eq!(quoted(Path::new("my data/it's")), r"'my data/it'\''s'");
    }
}
