//! Images in tar archives, in the layout of WebDataset: a sample has the entries whose names are the same up to the first dot of the
//! file's name, as in `0001.jpg` and `0001.cls`, which holds its class. Every file in an archive belongs to a sample that is used, or counts
//! as unusable.
//!
//! Source: WebDataset, "The WebDataset Format".

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tar::EntryType;

use crate::cache::default_cache_dir;
use crate::class_label::{ClassLabel, ClassList, LABELS, MAX_LABEL_BYTES};
use crate::decode::MOST_BYTES;
use crate::folder::{ImageFolder, LabelledFile, NamedSplit, SplitPart, entries, is_image_extension, named_folders};
use crate::tar_reader::{TarEntry, TarReader};
use crate::{BadImage, DataError, Split};

/// Lists the images of the archives in a folder. Returns `None` if there are no training images.
pub(crate) fn find(folder: &Path) -> Result<Option<ImageFolder>, DataError> {
    let mut listing = Listing::default();
    let [train, test, val] = archives(folder, &mut listing.unusable)?;
    if train.is_empty() {
        return Ok(None);
    }
    let test = if test.is_empty() { val } else { test };
    if test.is_empty() {
        let reason =
            "has archives to train on, but none that have 'test' or 'val' in their names, or are in such a folder";
        return Err(DataError::corrupt(folder, reason));
    }
    let mut splits = [(Split::Train, Vec::new()), (Split::Test, Vec::new())];
    for (archives, (_, samples)) in [train, test].iter().zip(&mut splits) {
        for archive in archives {
            listing.list(archive, samples)?;
        }
    }
    let unusable = &mut listing.unusable;
    numbered(folder, splits, unusable).map(Some).map_err(|error| match (error, unusable.first()) {
        (DataError::Corrupt { path, reason }, Some(BadImage { path: first, reason: why })) => {
            let (count, first) = (unusable.len(), first.display());
            DataError::corrupt(path, format!("{reason}; {count} samples cannot be used, such as {first}: {why}"))
        }
        (error, _) => error,
    })
}

/// Returns the samples with the numbers of their classes.
fn numbered(
    folder: &Path,
    splits: [(Split, Vec<UnnumberedFile>); 2],
    unusable: &mut Vec<BadImage>,
) -> Result<ImageFolder, DataError> {
    if let Some((split, _)) = splits.iter().find(|(_, samples)| samples.is_empty()) {
        let reason =
            format!("none of the {split} samples has both an image ({IMAGES}) and a class (.cls, .json or .txt)");
        return Err(DataError::corrupt(folder, reason));
    }
    let classes = ClassList::new(folder, splits.iter().flat_map(|(_, samples)| samples).map(|sample| &sample.label))?;
    let [train, test] = splits.map(|(_, samples)| {
        let number = |UnnumberedFile { path, part, label }| match classes.number(&label) {
            Ok(label) => Some(LabelledFile { path, part: Some(part), label }),
            Err(reason) => {
                unusable.push(BadImage { path, reason });
                None
            }
        };
        samples.into_iter().filter_map(number).collect::<Vec<_>>()
    });
    classes.check(folder, [(Split::Train, &train), (Split::Test, &test)])?;
    Ok(ImageFolder { classes: classes.names, train, test, unusable: std::mem::take(unusable) })
}

/// Returns the sorted archives for training, tests and validation: those that say so in their names, or are in a folder that does.
fn archives(folder: &Path, unusable: &mut Vec<BadImage>) -> Result<[Vec<PathBuf>; 3], DataError> {
    let mut archives = [const { Vec::new() }; 3];
    let inside = named_folders(folder, |_| true)?;
    if inside[0].is_some() {
        for (inside, found) in inside.iter().zip(&mut archives) {
            if let Some(inside) = inside {
                found.extend(entries(inside)?.into_iter().filter(|path| is_archive(path)));
            }
        }
        return Ok(archives);
    }
    for path in entries(folder)?.into_iter().filter(|path| is_archive(path)) {
        match NamedSplit::of(&path) {
            Some(split) => archives[split as usize].push(path),
            None => unusable.push(BadImage { path, reason: "expected one of train, test, val in its name".into() }),
        }
    }
    Ok(archives)
}

/// Returns `true` if a file has the name of an archive. How it is compressed, its content says.
fn is_archive(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let mut ends = name.rsplit('.');
    let is_one = match ends.next() {
        Some("tar" | "tgz" | "tzst" | "txz" | "tbz2") => true,
        Some("gz" | "zst" | "xz" | "bz2" | "lz4") => ends.next() == Some("tar"),
        _ => false,
    };
    is_one && path.is_file()
}

const RIVAL: &str = "there is another image of the same sample, whose name ends at the first dot";
/// The names that images have, for messages.
const IMAGES: &str = ".png, .jpg, .jpeg or .webp";

/// A sample, the number of whose class may not be known yet.
struct UnnumberedFile {
    path: PathBuf,
    part: SplitPart,
    label: ClassLabel,
}

/// A sample of which not all entries may have been read.
#[derive(Default)]
struct Sample {
    /// The path of the archive, followed by the name of the sample.
    path: PathBuf,
    /// The image, and whether its name has nothing between that of the sample and the extension.
    image: Option<(PathBuf, SplitPart, bool)>,
    /// Other images that might be meant.
    rivals: Vec<PathBuf>,
    /// The class, and the position of the field that it is from among those that may hold it.
    label: Option<(usize, Result<ClassLabel, String>)>,
    /// The extensions of some other entries, for messages.
    others: Vec<String>,
}

impl Sample {
    /// Adds an image. `0001.png` is preferred to `0001.mask.png`.
    fn add_image(&mut self, path: PathBuf, part: SplitPart, is_plain: bool) {
        if matches!(self.image, Some((_, _, true))) && !is_plain {
            return;
        }
        match self.image.replace((path, part, is_plain)) {
            Some((path, _, was_plain)) if was_plain == is_plain => self.rivals.push(path),
            _ => self.rivals.clear(),
        }
    }

    fn add_label(&mut self, rank: usize, label: Result<ClassLabel, String>) {
        match &mut self.label {
            Some((before, label)) if *before == rank => *label = Err("is there twice".into()),
            Some((before, _)) if *before < rank => {}
            _ => self.label = Some((rank, label)),
        }
    }

    fn end(self, samples: &mut Vec<UnnumberedFile>, unusable: &mut Vec<BadImage>) {
        let found = self.others.iter().fold(String::new(), |text, other| text + "; found ." + other);
        let field = |rank: usize| LABELS[rank % LABELS.len()];
        let (path, reason) = match (self.image, self.label) {
            (Some((path, _, false)), _) if !self.rivals.is_empty() => (path, RIVAL.into()),
            (Some((path, part, _)), Some((_, Ok(label)))) => {
                samples.push(UnnumberedFile { path, part, label });
                unusable.extend(self.rivals.into_iter().map(|path| BadImage { path, reason: RIVAL.into() }));
                return;
            }
            (Some((path, ..)), Some((rank, Err(reason)))) => (path, format!("its .{} {reason}", field(rank))),
            (Some((path, ..)), None) => (path, format!("there is no .cls, .json or .txt with its class{found}")),
            (None, Some((rank, _))) => (self.path, format!("has a .{}, but no {IMAGES}{found}", field(rank))),
            (None, None) => (self.path, format!("has neither {IMAGES}, nor .cls, .json or .txt with a class{found}")),
        };
        unusable.push(BadImage { path, reason });
        unusable.extend(self.rivals.into_iter().map(|path| BadImage { path, reason: RIVAL.into() }));
    }
}

/// The samples of one archive, in the order of their first entries.
#[derive(Default)]
struct SampleGroup {
    samples: Vec<Sample>,
    /// The last sample of each name.
    by_name: HashMap<Vec<u8>, usize>,
    last: Option<usize>,
}

impl SampleGroup {
    /// Returns the sample of an entry. The entries of a sample need not follow each other, but a whole sample whose name appears once
    /// more has been followed by another one.
    fn sample(&mut self, name: &[u8], archive: &Path, is_part: bool) -> &mut Sample {
        let known = self.by_name.get(name).copied().filter(|at| {
            let Sample { image, label, .. } = &self.samples[*at];
            self.last == Some(*at) || !is_part || image.is_none() || label.is_none()
        });
        let at = known.unwrap_or_else(|| {
            self.by_name.insert(name.into(), self.samples.len());
            self.samples.push(Sample { path: path_in(archive, name), ..Sample::default() });
            self.samples.len() - 1
        });
        self.last = Some(at);
        &mut self.samples[at]
    }
}

/// What was found in the archives so far, and the images of compressed ones.
#[derive(Default)]
struct Listing {
    unusable: Vec<BadImage>,
    /// A file without a name, and its size.
    unpacked: Option<Arc<File>>,
    unpacked_bytes: u64,
}

impl Listing {
    fn list(&mut self, path: &Path, samples: &mut Vec<UnnumberedFile>) -> Result<(), DataError> {
        let mut reader = TarReader::open(path)?;
        let archive: Arc<Path> = path.into();
        let (mut group, mut is_empty) = (SampleGroup::default(), true);
        while let Some(entry) = reader.next_entry()? {
            if entry.begins_archive {
                std::mem::take(&mut group)
                    .samples
                    .into_iter()
                    .for_each(|sample| sample.end(samples, &mut self.unusable));
            }
            self.add(&archive, &entry, &mut reader, &mut group)?;
            is_empty = false;
        }
        group.samples.into_iter().for_each(|sample| sample.end(samples, &mut self.unusable));
        if is_empty {
            self.unusable.push(BadImage { path: path.into(), reason: "is empty: expected a tar archive".into() });
        }
        Ok(())
    }

    fn add(
        &mut self,
        archive: &Arc<Path>,
        entry: &TarEntry,
        reader: &mut TarReader,
        group: &mut SampleGroup,
    ) -> Result<(), DataError> {
        let path = path_in(archive, &entry.name);
        let begin = entry.name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let dot = entry.name[begin..].iter().position(|byte| *byte == b'.');
        // Systems leave hidden files everywhere.
        if entry.kind == EntryType::Directory || dot == Some(0) {
            return Ok(());
        }
        let problem = match entry.kind {
            EntryType::Regular if dot.is_some() => None,
            EntryType::Regular => Some("there is no dot in its name, which would end that of its sample"),
            EntryType::Link | EntryType::Symlink => Some("is a link: expected the file itself"),
            EntryType::GNUSparse => Some("is a sparse file: expected an archive made without --sparse"),
            _ => Some("is no file"),
        };
        let (Some(dot), None) = (dot, problem) else {
            self.unusable.push(BadImage { path, reason: problem.unwrap_or_default().into() });
            return Ok(());
        };
        let (sample, field) = entry.name.split_at(begin + dot);
        let field = String::from_utf8_lossy(&field[1..]).to_lowercase();
        let (is_plain, extension) = field.rsplit_once('.').map_or((true, &*field), |(_, extension)| (false, extension));
        let rank = LABELS.iter().position(|label| *label == extension);
        let is_image = is_image_extension(extension);
        let sample = group.sample(sample, archive, is_image || rank.is_some());
        if is_image {
            sample.add_image(path, self.part(archive, entry, reader)?, is_plain);
            return Ok(());
        }
        let label = match rank {
            Some(_) if entry.bytes > MAX_LABEL_BYTES => Err(format!("has more than {MAX_LABEL_BYTES} bytes")),
            Some(_) => ClassLabel::decode(extension, &reader.content()?),
            None => Ok(None),
        };
        match (rank, label.transpose()) {
            (Some(rank), Some(label)) => sample.add_label(if is_plain { rank } else { rank + LABELS.len() }, label),
            _ if sample.others.len() < 2 => sample.others.push(extension.to_owned()),
            _ => {}
        }
        Ok(())
    }

    /// Returns the place of an image, which is copied if its archive is compressed.
    fn part(&mut self, archive: &Arc<Path>, entry: &TarEntry, reader: &mut TarReader) -> Result<SplitPart, DataError> {
        let part = SplitPart { archive: archive.clone(), unpacked: None, offset: 0, bytes: entry.bytes };
        if let Some(offset) = entry.position {
            return Ok(SplitPart { offset, ..part });
        }
        let cache = default_cache_dir();
        let new_file = || std::fs::create_dir_all(&cache).and_then(|()| tempfile::tempfile_in(&cache)).map(Arc::new);
        let unpacked = match &self.unpacked {
            Some(file) => file.clone(),
            None => self.unpacked.insert(new_file().map_err(DataError::cache(&cache))?).clone(),
        };
        let offset = self.unpacked_bytes;
        // A larger one is refused when it is packed.
        if entry.bytes <= MOST_BYTES {
            reader.copy_to(&unpacked, &cache)?;
            self.unpacked_bytes += entry.bytes;
        }
        Ok(SplitPart { offset, unpacked: Some(unpacked), ..part })
    }
}

fn path_in(archive: &Path, name: &[u8]) -> PathBuf {
    let mut path = archive.as_os_str().to_owned();
    path.push("/");
    path.push(&*String::from_utf8_lossy(name));
    path.into()
}
