//! Tests of `ata data fetch` against a server that follows a script.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use crate::support::Sandbox;
use ata_data::{Split, Synthetic, hex, sha256_of_file};
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

const NAME: &str = "cifar-100-binary.tar.gz";
const PARTIAL: &str = "cifar-100-binary.tar.gz.partial";

/// Returns a small archive in the official layout.
fn archive() -> Vec<u8> {
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (split, records) in [(Split::Train, 40), (Split::Test, 10)] {
        let data = Synthetic::new(split, 1);
        let content: Vec<u8> = (0..records).flat_map(|index| data.record(index)).collect();
        let mut header = Header::new_ustar();
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, format!("cifar-100-binary/{}", split.file_name()), &content[..]).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// Starts a server that sends a reply on each connection, and stops after the last one. Returns the address of its archive.
fn serve(replies: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/archive.tar.gz", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for reply in replies {
            let (mut stream, _) = listener.accept().unwrap();
            let head: Vec<String> =
                BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            assert!(head[0].starts_with("GET /archive.tar.gz "), "{head:?}");
            // The client may close the connection before the end of the reply.
            drop(stream.write_all(&reply));
        }
    });
    url
}

fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n").as_bytes(), body].concat()
}

/// Returns a reply that announces the whole archive and sends the first `sent` bytes of it.
fn first(archive: &[u8], sent: usize) -> Vec<u8> {
    reply("200 OK", &format!("Content-Length: {}\r\n", archive.len()), &archive[..sent])
}

fn whole(archive: &[u8]) -> Vec<u8> {
    first(archive, archive.len())
}

/// A test of a fetch: a sandbox, the archive, and its SHA-256.
struct Fetch {
    sandbox: Sandbox,
    archive: Vec<u8>,
    sha256: String,
}

impl Fetch {
    fn new(archive: Vec<u8>) -> Self {
        let sandbox = Sandbox::new();
        std::fs::write(sandbox.path("original"), &archive).unwrap();
        let sha256 = hex(&sha256_of_file(&sandbox.path("original")).unwrap());
        Self { sandbox, archive, sha256 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path("data").join(name)
    }

    /// Returns the number of files in the folder.
    fn left(&self) -> usize {
        std::fs::read_dir(self.sandbox.path("data")).unwrap().count()
    }

    /// Runs a fetch into the folder `data`, and returns exit code, standard output and standard error.
    fn run(&self, url: &str, more: &[&str]) -> (i32, String, String) {
        let output = self.sandbox.run(&[&["data", "fetch", "data", "--url", url], more].concat());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Runs a fetch that must download the archive and leave nothing else.
    fn succeeds(&self, url: &str) -> String {
        let (code, out, log) = self.run(url, &["--sha256", &self.sha256]);
        assert_eq!(code, 0, "{log}");
        assert_eq!(std::fs::read(self.path(NAME)).unwrap(), self.archive);
        assert_eq!(self.left(), 1, "only the archive is left");
        out
    }

    /// Runs a fetch that must fail with one line that contains all of these texts.
    fn fails(&self, url: &str, code: i32, says: &[&str]) {
        let (found, out, log) = self.run(url, &["--sha256", &self.sha256]);
        assert_eq!((found, out.as_str()), (code, ""), "{log}");
        let last = log.lines().last().unwrap();
        assert!(last.starts_with("ata: ") && !log.contains("panicked"), "{log}");
        for text in says {
            assert!(last.contains(text), "expected '{text}': {last}");
        }
    }
}

#[test]
fn the_archive_is_downloaded_and_verified() {
    let fetch = Fetch::new(archive());
    let url = serve(vec![whole(&fetch.archive)]);
    let out = fetch.succeeds(&url);
    for line in [&fetch.sha256, "train.bin: 40 records", "test.bin: 10 records"] {
        assert!(out.contains(line), "{out}");
    }
    assert!(out.lines().last().unwrap().contains("ata up --data data/cifar-100-binary.tar.gz"), "{out}");

    // The archive exists now, so no server is contacted.
    let (code, out, log) = fetch.run("http://127.0.0.1:1/", &["--sha256", &fetch.sha256, "--json"]);
    assert!(code == 0 && log.contains("is there already"), "{log}");
    let expected = serde_json::json!({
        "path": format!("data/{NAME}"), "bytes": fetch.archive.len(), "sha256": fetch.sha256,
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap(), expected);
}

#[test]
fn a_redirect_is_followed() {
    let fetch = Fetch::new(archive());
    let target = serve(vec![whole(&fetch.archive)]);
    let redirect = format!("Location: {target}\r\nContent-Length: 0\r\n");
    fetch.succeeds(&serve(vec![reply("302 Found", &redirect, &[])]));
}

#[test]
fn a_connection_that_breaks_leaves_nothing() {
    let fetch = Fetch::new(archive());
    let url = serve(vec![first(&fetch.archive, fetch.archive.len() / 2), whole(&fetch.archive)]);
    fetch.fails(&url, 69, &[&url, "ended early", "Try again"]);
    assert_eq!(fetch.left(), 0);
    fetch.succeeds(&url);
}

#[test]
fn what_a_server_does_not_serve_is_reported_with_its_address() {
    let fetch = Fetch::new(archive());
    for status in ["404 Not Found", "503 Service Unavailable"] {
        let url = serve(vec![reply(status, "Content-Length: 0\r\n", &[])]);
        fetch.fails(&url, 69, &[&url, status]);
    }
    let too_large = reply("200 OK", &format!("Content-Length: {}\r\n", (1 << 30) + 1), b"some");
    let url = serve(vec![too_large]);
    fetch.fails(&url, 65, &[&url, "1073741825"]);
    // The port was free a moment ago.
    let url = format!("http://{}/", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    fetch.fails(&url, 69, &[&url, "Check the network", "--url"]);
    assert_eq!(fetch.left(), 0);
}

#[test]
fn another_archive_is_removed() {
    let fetch = Fetch::new(archive());
    let url = serve(vec![whole(&fetch.archive)]);
    let expected = "0".repeat(64);
    let (code, out, log) = fetch.run(&url, &["--sha256", &expected]);
    assert!(code == 65 && out.is_empty(), "{log}");
    let last = log.lines().last().unwrap();
    assert!(last.contains(&expected) && last.contains(&fetch.sha256), "{log}");
    assert_eq!(fetch.left(), 0);

    // Without --sha256, a mirror must have the official archive.
    let url = serve(vec![whole(&fetch.archive)]);
    let (code, _, log) = fetch.run(&url, &[]);
    assert!(code == 65 && log.contains("58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"), "{log}");
}

#[test]
fn an_archive_that_is_none_is_refused() {
    let fetch = Fetch::new(b"not an archive".to_vec());
    let url = serve(vec![whole(&fetch.archive)]);
    fetch.fails(&url, 65, &[NAME, "is no whole tar archive"]);
}

#[test]
fn wrong_usage() {
    let fetch = Fetch::new(archive());
    for url in ["", "ftp://mirror/a", "mirror/a", "http://", "http:///a", "http://a b/"] {
        fetch.fails(url, 64, &["--url", "expected http://HOST/PATH"]);
    }
    let (code, _, log) = fetch.run("http://127.0.0.1:1/", &["--sha256", "58a8"]);
    assert!(code == 64 && log.contains("64 hexadecimal digits"), "{log}");
    assert!(!fetch.sandbox.path("data").exists());
}

#[test]
fn what_is_in_the_way_is_named_and_left_alone() {
    let fetch = Fetch::new(archive());
    let folder = fetch.sandbox.path("data");
    std::fs::write(&folder, "").unwrap();
    fetch.fails("http://127.0.0.1:1/", 74, &["cannot create data", "another folder"]);
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(fetch.path(NAME), b"mine").unwrap();
    fetch.fails("http://127.0.0.1:1/", 65, &[NAME, "another file", &fetch.sha256]);
    assert_eq!(std::fs::read(fetch.path(NAME)).unwrap(), b"mine");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk() {
    let fetch = Fetch::new(archive());
    std::fs::create_dir(fetch.sandbox.path("data")).unwrap();
    std::os::unix::fs::symlink("/dev/full", fetch.path(PARTIAL)).unwrap();
    let url = serve(vec![whole(&fetch.archive)]);
    fetch.fails(&url, 74, &[PARTIAL, "No space left on device"]);
    assert_eq!(fetch.left(), 0);
}
