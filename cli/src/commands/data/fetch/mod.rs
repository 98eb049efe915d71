//! `ata data fetch`: the official archive of CIFAR-100, downloaded and verified.
//!
//! # Layout
//! - `answer`: what a server's answer means
//! - `download`: requests, until the partial file is whole
//! - `partial`: the file that they fill

mod answer;
mod download;
mod partial;

use std::path::Path;

use ata_learn::{Images, Split, hex, sha256_of_file};
use serde::Serialize;
use ureq::http::Uri;

use crate::args::FetchArgs;
use crate::failure::Failure;
use crate::output::Output;
use partial::Partial;

/// Whatever the URL calls it: the name that `--data` has in the documentation.
const FILE_NAME: &str = "cifar-100-binary.tar.gz";

/// A data set that was downloaded and checked.
#[derive(Serialize)]
struct Download<'a> {
    path: &'a Path,
    bytes: u64,
    sha256: &'a str,
    /// Descriptions of its splits.
    #[serde(skip)]
    splits: Vec<String>,
}

impl Output for Download<'_> {
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
        eprintln!("{} is there already; checking it", path.display());
        check_existing(&path, &args.sha256)?;
    } else {
        fetch(&path, &args.url, &args.sha256, args.retries)?;
    }
    let unpacked = Images::folder(&path)?;
    let splits = [super::check(&unpacked, Split::Train)?, super::check(&unpacked, Split::Test)?];
    let bytes = path.metadata().map_err(|cause| Failure::disk(format!("{}: {cause}", path.display())))?.len();
    Download { path: &path, bytes, sha256: &args.sha256, splits: splits.into() }.print(args.json)
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

/// A file of ours needs no download; another one is not ours to replace.
fn check_existing(path: &Path, expected: &str) -> Result<(), Failure> {
    let found = hex(&sha256_of_file(path)?);
    if found == expected {
        return Ok(());
    }
    let shown = path.display();
    Err(Failure::data(format!(
        "{shown} exists and is another file: expected sha256 {expected}, found {found}. Move it, or give another folder"
    )))
}

/// Downloads the archive next to its path, and moves it there once its SHA-256 is right.
fn fetch(path: &Path, url: &str, expected: &str, retries: u32) -> Result<(), Failure> {
    let mut partial = Partial::open(path)?;
    if let Err(failure) = download::download(url, &mut partial, retries) {
        if partial.len() == 0 {
            partial.remove()?;
        }
        return Err(failure);
    }
    eprintln!("checking it");
    let downloaded = partial.close()?;
    let found = hex(&sha256_of_file(&downloaded)?);
    if found != expected {
        partial::remove(&downloaded)?;
        return Err(Failure::data(format!(
            "{url}: expected sha256 {expected}, found {found}. What was downloaded is removed: run the command again, or \
             set --sha256 if you want another archive"
        )));
    }
    std::fs::rename(&downloaded, path)
        .map_err(|cause| Failure::disk(format!("cannot rename {}: {cause}", downloaded.display())))
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
