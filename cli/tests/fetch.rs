//! `ata data fetch` against a server that follows a script.

mod support;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use ata_learn::{Split, Synthetic, hex, sha256_of_file};
use flate2::Compression;
use flate2::write::GzEncoder;
use support::Sandbox;
use tar::{Builder, Header};

const NAME: &str = "cifar-100-binary.tar.gz";
const PARTIAL: &str = "cifar-100-binary.tar.gz.partial";

/// A small archive in the official layout.
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

/// What the server does with one connection: it reads the request, sends these bytes, and closes.
type Reply = Box<dyn FnOnce(&Request) -> Vec<u8> + Send>;

/// The head of a request.
struct Request(Vec<String>);

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ String| line.split_once(": ").is_some_and(|(key, _)| key.eq_ignore_ascii_case(name));
        Some(self.0.iter().find(|line| of(line))?.split_once(": ")?.1)
    }

    /// The first byte that it asks for.
    fn first(&self) -> usize {
        let range = self.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        range.map_or(0, |first| first.parse().unwrap())
    }
}

/// A server that goes away after the last reply.
struct Server {
    url: String,
    requests: Receiver<Request>,
}

impl Server {
    fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/archive.tar.gz", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for reply in replies {
                let (mut stream, _) = listener.accept().unwrap();
                let request = read_head(&stream);
                let bytes = reply(&request);
                // Before the answer, so that a client that is done finds its requests here.
                drop(sender.send(request));
                // The client may have seen enough before the end.
                drop(stream.write_all(&bytes));
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.try_iter().collect()
    }
}

fn read_head(stream: &TcpStream) -> Request {
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    Request(lines.take_while(|line| !line.is_empty()).collect())
}

fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n").as_bytes(), body].concat()
}

/// The whole archive, whatever range is asked for.
fn whole(archive: &[u8]) -> Reply {
    let headers = format!("Content-Length: {}\r\n", archive.len());
    let all = reply("200 OK", &headers, archive);
    Box::new(move |_| all)
}

/// The archive, but the connection ends in the middle.
fn broken(archive: &[u8]) -> Reply {
    let headers = format!("Content-Length: {}\r\n", archive.len());
    let half = reply("200 OK", &headers, &archive[..archive.len() / 2]);
    Box::new(move |_| half)
}

/// The part that is asked for.
fn rest(archive: &[u8]) -> Reply {
    let archive = archive.to_vec();
    Box::new(move |request| {
        let (first, bytes) = (request.first(), archive.len());
        let headers =
            format!("Content-Length: {}\r\nContent-Range: bytes {first}-{}/{bytes}\r\n", bytes - first, bytes - 1);
        reply("206 Partial Content", &headers, &archive[first..])
    })
}

/// A refusal, or anything else without a body.
fn head(status: &'static str, headers: impl Into<String>) -> Reply {
    let headers = headers.into();
    Box::new(move |_| reply(status, &(headers + "Content-Length: 0\r\n"), &[]))
}

/// A sandbox, the archive, and its SHA-256.
struct Fetch {
    sandbox: Sandbox,
    archive: Vec<u8>,
    sha256: String,
}

impl Fetch {
    fn new() -> Self {
        let (sandbox, archive) = (Sandbox::new(), archive());
        std::fs::write(sandbox.path("original"), &archive).unwrap();
        let sha256 = hex(&sha256_of_file(&sandbox.path("original")).unwrap());
        Self { sandbox, archive, sha256 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path("data").join(name)
    }

    /// Leaves what an earlier download could have left.
    fn leave(&self, name: &str, bytes: &[u8]) {
        std::fs::create_dir_all(self.sandbox.path("data")).unwrap();
        std::fs::write(self.path(name), bytes).unwrap();
    }

    /// Exit code, standard output and standard error of a fetch into the folder `data`.
    fn run(&self, url: &str, more: &[&str]) -> (i32, String, String) {
        let output = self.sandbox.run(&[&["data", "fetch", "data", "--url", url], more].concat());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// A fetch that must bring the archive and leave nothing else.
    fn succeeds(&self, server: &Server) -> String {
        let (code, out, log) = self.run(&server.url, &["--sha256", &self.sha256]);
        assert_eq!(code, 0, "{log}");
        assert_eq!(std::fs::read(self.path(NAME)).unwrap(), self.archive);
        assert_eq!(std::fs::read_dir(self.sandbox.path("data")).unwrap().count(), 1, "only the archive is left");
        out
    }

    /// A fetch that must fail with one line that says all of this.
    fn fails(&self, url: &str, more: &[&str], code: i32, says: &[&str]) {
        let (found, out, log) = self.run(url, &[&["--sha256", &self.sha256], more].concat());
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
    let fetch = Fetch::new();
    let server = Server::start(vec![whole(&fetch.archive)]);
    let out = fetch.succeeds(&server);
    for line in [&fetch.sha256, "train.bin: 40 records", "test.bin: 10 records"] {
        assert!(out.contains(line), "{out}");
    }
    assert!(out.lines().last().unwrap().contains("ata up --data data/cifar-100-binary.tar.gz"), "{out}");
    let requests = server.requests();
    assert!(requests[0].0[0].starts_with("GET /archive.tar.gz "));
    assert_eq!(requests[0].header("range"), None);

    // Now nothing is asked of any server.
    let (code, out, log) = fetch.run("http://127.0.0.1:1/", &["--sha256", &fetch.sha256, "--json"]);
    assert!(code == 0 && log.contains("is there already"), "{log}");
    let expected = serde_json::json!({
        "path": format!("data/{NAME}"), "bytes": fetch.archive.len(), "sha256": fetch.sha256,
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&out).unwrap(), expected);
}

#[test]
fn a_redirect_is_followed() {
    let fetch = Fetch::new();
    let target = Server::start(vec![rest(&fetch.archive)]);
    let server = Server::start(vec![head("302 Found", format!("Location: {}\r\n", target.url))]);
    fetch.leave(PARTIAL, &fetch.archive[..1000]);
    fetch.succeeds(&server);
    assert_eq!(target.requests()[0].first(), 1000, "the range is asked of the target");
}

#[test]
fn a_broken_connection_is_continued() {
    let fetch = Fetch::new();
    let server = Server::start(vec![broken(&fetch.archive), rest(&fetch.archive)]);
    fetch.succeeds(&server);
    let requests = server.requests();
    assert_eq!(requests[1].first(), fetch.archive.len() / 2);
}

#[test]
fn a_later_command_continues() {
    let fetch = Fetch::new();
    let half = fetch.archive.len() / 2;
    let server = Server::start(vec![broken(&fetch.archive)]);
    fetch.fails(&server.url, &["--retries", "0"], 69, &[&server.url, "broke off", PARTIAL, "is kept"]);
    assert_eq!(std::fs::read(fetch.path(PARTIAL)).unwrap(), fetch.archive[..half]);
    let server = Server::start(vec![rest(&fetch.archive)]);
    fetch.succeeds(&server);
    assert_eq!(server.requests()[0].first(), half);
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let fetch = Fetch::new();
    fetch.leave(PARTIAL, &[7; 1000]);
    let server = Server::start(vec![whole(&fetch.archive)]);
    fetch.succeeds(&server);
    assert_eq!(server.requests()[0].first(), 1000);
}

#[test]
fn what_is_whole_already_is_only_checked() {
    let fetch = Fetch::new();
    fetch.leave(PARTIAL, &fetch.archive);
    let range = format!("Content-Range: bytes */{}\r\n", fetch.archive.len());
    fetch.succeeds(&Server::start(vec![head("416 Range Not Satisfiable", range)]));
}

#[test]
fn a_part_that_does_not_fit_is_removed() {
    let fetch = Fetch::new();
    fetch.leave(PARTIAL, &[&fetch.archive[..], b"more"].concat());
    let range = format!("Content-Range: bytes */{}\r\n", fetch.archive.len());
    let server = Server::start(vec![head("416 Range Not Satisfiable", range)]);
    fetch.fails(&server.url, &[], 65, &["expected sha256", "run the command again"]);
    fetch.succeeds(&Server::start(vec![whole(&fetch.archive)]));
}

#[test]
fn refusals_name_the_address_and_the_status() {
    let fetch = Fetch::new();
    for status in ["404 Not Found", "403 Forbidden", "503 Service Unavailable"] {
        let server = Server::start(vec![head(status, "")]);
        fetch.fails(&server.url, &["--retries", "0"], 69, &[&server.url, status]);
    }
    assert!(!fetch.path(PARTIAL).exists());
}

#[test]
fn nobody_at_the_address() {
    let fetch = Fetch::new();
    // The port was free a moment ago.
    let url = format!("http://{}/", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    fetch.fails(&url, &[], 69, &[&url, "unreachable", "--url"]);
    assert!(!fetch.path(PARTIAL).exists());
}

#[test]
fn another_archive_is_removed() {
    let fetch = Fetch::new();
    let server = Server::start(vec![whole(&fetch.archive)]);
    let expected = "0".repeat(64);
    let (code, out, log) = fetch.run(&server.url, &["--sha256", &expected]);
    assert!(code == 65 && out.is_empty(), "{log}");
    let last = log.lines().last().unwrap();
    assert!(last.contains(&expected) && last.contains(&fetch.sha256), "{log}");
    assert_eq!(std::fs::read_dir(fetch.sandbox.path("data")).unwrap().count(), 0);

    // A mirror is expected to have the official archive.
    let server = Server::start(vec![whole(&fetch.archive)]);
    let (code, _, log) = fetch.run(&server.url, &[]);
    assert!(code == 65 && log.contains("58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"), "{log}");
}

#[test]
fn an_archive_that_is_none_is_refused() {
    let mut fetch = Fetch::new();
    fetch.archive = b"not an archive".to_vec();
    std::fs::write(fetch.sandbox.path("original"), &fetch.archive).unwrap();
    fetch.sha256 = hex(&sha256_of_file(&fetch.sandbox.path("original")).unwrap());
    let server = Server::start(vec![whole(&fetch.archive)]);
    fetch.fails(&server.url, &[], 65, &[NAME, "not a"]);
}

#[test]
fn another_file_of_that_name_is_left_alone() {
    let fetch = Fetch::new();
    fetch.leave(NAME, b"mine");
    fetch.fails("http://127.0.0.1:1/", &[], 65, &[NAME, "another file", &fetch.sha256]);
    assert_eq!(std::fs::read(fetch.path(NAME)).unwrap(), b"mine");
}

#[test]
fn what_is_too_large_is_refused() {
    let fetch = Fetch::new();
    let too_large: u64 = (1 << 30) + 1;
    let announced = reply("200 OK", &format!("Content-Length: {too_large}\r\n"), b"some");
    let server = Server::start(vec![Box::new(|_| announced)]);
    fetch.fails(&server.url, &[], 65, &[&server.url, "1073741825"]);

    // A server that does not announce how much it sends.
    fetch.leave(PARTIAL, b"");
    OpenOptions::new().write(true).open(fetch.path(PARTIAL)).unwrap().set_len(1 << 30).unwrap();
    let range = format!("Content-Range: bytes {}-{}/*\r\n", 1 << 30, 1 << 30);
    let sent = reply("206 Partial Content", &range, b"x");
    let server = Server::start(vec![Box::new(|_| sent)]);
    fetch.fails(&server.url, &[], 65, &[&server.url, "1073741825"]);
    assert!(!fetch.path(PARTIAL).exists());
}

#[test]
fn wrong_usage() {
    let fetch = Fetch::new();
    for url in ["ftp://mirror/a", "mirror", "http://", "http://a b/"] {
        fetch.fails(url, &[], 64, &["--url", "expected http://HOST/PATH"]);
    }
    let (code, _, log) = fetch.run("http://127.0.0.1:1/", &["--sha256", "58a8"]);
    assert!(code == 64 && log.contains("64 hexadecimal digits"), "{log}");
    assert!(!fetch.sandbox.path("data").exists());
}

#[test]
fn what_cannot_be_written() {
    let fetch = Fetch::new();
    std::fs::write(fetch.sandbox.path("data"), "").unwrap();
    fetch.fails("http://127.0.0.1:1/", &[], 74, &["cannot create data", "another folder"]);
    std::fs::remove_file(fetch.sandbox.path("data")).unwrap();

    fetch.leave(PARTIAL, b"");
    let held = File::open(fetch.path(PARTIAL)).unwrap();
    held.lock().unwrap();
    fetch.fails("http://127.0.0.1:1/", &[], 74, &[PARTIAL, "another `ata data fetch`"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk() {
    let fetch = Fetch::new();
    std::fs::create_dir(fetch.sandbox.path("data")).unwrap();
    std::os::unix::fs::symlink("/dev/full", fetch.path(PARTIAL)).unwrap();
    let server = Server::start(vec![whole(&fetch.archive)]);
    fetch.fails(&server.url, &[], 74, &[PARTIAL, "No space left on device"]);
}
