//! Writes valid inputs to `corpus/TARGET/`, from which fuzzing starts: `cargo run --bin ata-fuzz`.

use std::path::Path;

use ata_harness::Frames;
use ata_data::{IMAGE_BYTES, Split, Synthetic};
use ata_sums::{Metadata, ParameterTable, encode_model};
use ata_net::{Credentials, Role};
use ata_wire::SessionToken;

fn main() {
    for (kind, frames) in (0..).zip(Frames::ALL) {
        for (number, example) in frames.examples(SessionToken([5; 16])).into_iter().enumerate() {
            write("frames", &format!("{kind}-{number}"), &[&[kind][..], &example].concat());
        }
    }
    for (number, law) in
        ["shifted_exp(29*i, 29*i)", "uniform(i, 2*(n + sqrt(i)))", "affine(1, 2, 3)"].iter().enumerate()
    {
        write("time_law", &number.to_string(), law.as_bytes());
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let credentials = Credentials::open(folder.path()).expect("credentials can be made");
    let pin = credentials.tls_files().pin().expect("a certificate");
    let (token, _) = credentials.token(Role::Worker, "head:7070".parse().expect("an address"), pin).expect("a token");
    write("join_token", "0", token.to_string().as_bytes());
    write("trace", "0", b"# seconds\n1.5 2 3\n0.5,1e-3,7\n");
    for name in ["speed-change", "ata-quadratic", "ata-warm-start"] {
        let path = format!("../research/experiments/builtin/{name}.toml");
        write("experiment", name, &std::fs::read(path).expect("an experiment of the repository"));
    }
    write("records", "0", &Synthetic::new(Split::Train, 1).record(0));
    write("packed", "0", &packed());
    write("shard_index", "0", &shard_index());
    write("cifar10", "0", &[&[3][..], &[7; IMAGE_BYTES]].concat());
    write("image", "0", PNG);
    write("tar", "0", &tar(&[("1.png", PNG), ("1.cls", b"0"), ("2.png", PNG), ("2.cls", b"1")]));
    let model = encode_model(&ParameterTable::vector("theta", 5), &[1.0, -2.0, 0.5, 0.0, 9.0], &Metadata::new());
    write("model", "0", &model);
    write("journal", "0", b"{\"event\":\"rest\",\"time_s\":0.5,\"worker\":2,\"rest_s\":1.0,\"strikes\":1}\n");
}

/// A grey image of one pixel.
const PNG: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\x0aIDATx\x9cch\x00\x00\x00\x82\x00\x81w\xcdr\xb6\x00\x00\x00\x00IEND\xaeB`\x82";

/// An index of two shards, of at most two of three images.
fn shard_index() -> Vec<u8> {
    let (packed, words) = (packed(), [1_u32, 0].map(u32::to_le_bytes));
    let header = [&packed[..24], &3_u64.to_le_bytes(), &packed[32..64]].concat();
    [&b"ATA-SHDS"[..], words.as_flattened(), &2_u64.to_le_bytes(), &header, &[7; 2 * 32]].concat()
}

/// An archive of files with these names.
fn tar(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in entries {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// A packed image of 8 × 8 pixels, of one of two classes.
fn packed() -> Vec<u8> {
    let words = [1_u32, 8, 2, 8].map(u32::to_le_bytes);
    let channels = [0.5_f32, 0.5, 0.5, 0.2, 0.2, 0.2].map(f32::to_le_bytes);
    let record = [&1_u16.to_le_bytes()[..], &[7; 3 * 8 * 8]].concat();
    [&b"ATA-IMGS"[..], words.as_flattened(), &1_u64.to_le_bytes(), channels.as_flattened(), b"ant\ncat\n", &record]
        .concat()
}

fn write(target: &str, name: &str, content: &[u8]) {
    let folder = Path::new("corpus").join(target);
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    std::fs::write(folder.join(name), content).expect("a file can be written");
}
