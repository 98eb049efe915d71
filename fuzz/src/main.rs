//! Writes valid inputs to `corpus/TARGET/`, from which fuzzing starts: `cargo run --bin ata-fuzz`.

use std::path::Path;

use ata_harness::Frames;
use ata_data::{Split, Synthetic};
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
    let model = encode_model(&ParameterTable::vector("theta", 5), &[1.0, -2.0, 0.5, 0.0, 9.0], &Metadata::new());
    write("model", "0", &model);
    write("journal", "0", b"{\"event\":\"rest\",\"time_s\":0.5,\"worker\":2,\"rest_s\":1.0,\"strikes\":1}\n");
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
