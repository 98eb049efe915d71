//! Commands that can be pasted into a shell.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

/// Returns these words as one command, quoted for a POSIX shell.
pub(crate) fn command<'a>(words: impl IntoIterator<Item = Cow<'a, str>>) -> String {
    // No argument of a process contains a NUL, which cannot be quoted.
    let quoted = words.into_iter().map(|word| shlex::try_quote(&word).unwrap_or_default().into_owned());
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns a path as one word of a command.
pub(crate) fn word(path: &Path) -> String {
    command([path.to_string_lossy()])
}

/// Returns the command that goes on with the run in a folder: that of this process, with this run for `--resume`.
pub(crate) fn resuming(folder: &Path) -> String {
    resuming_by(std::env::args_os(), folder)
}

fn resuming_by(words: impl IntoIterator<Item = OsString>, folder: &Path) -> String {
    let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "--resume" {
            words.next();
        } else if !word.starts_with("--resume=") {
            kept.push(word);
        }
    }
    let mut run = folder.to_string_lossy().into_owned();
    // These words have another meaning there.
    if matches!(&*run, "auto" | "latest") || run.starts_with('-') {
        run.insert_str(0, "./");
    }
    command(kept.into_iter().chain(["--resume".into(), run]).map(Cow::Owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_goes_on_with_the_same_flags() {
        for (words, folder, expected) in [
            (&["ata", "up", "--lr", "0.1"][..], "runs/a", "ata up --lr 0.1 --resume runs/a"),
            (&["./ata", "up", "--out", "my run"], "my run", "./ata up --out 'my run' --resume 'my run'"),
            (
                &["ata", "up", "--resume", "auto", "--task-time", "exp(2*i)"],
                "it's",
                r#"ata up --task-time 'exp(2*i)' --resume "it's""#,
            ),
            (&["ata", "up", "--resume=latest", "--json"], "-x", "ata up --json --resume ./-x"),
            (
                &["python", "train.py", "coordinator", "--tag", "a=$b"],
                "auto",
                "python train.py coordinator --tag 'a=$b' --resume ./auto",
            ),
        ] {
            let command = resuming_by(words.iter().map(OsString::from), Path::new(folder));
            assert_eq!(command, expected);
            let mut read = shlex::split(&command).unwrap();
            assert!(Path::new(&read.pop().unwrap()).ends_with(folder), "{command}");
        }
    }
}
