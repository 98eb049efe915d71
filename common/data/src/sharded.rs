//! Packed images that are read shard by shard. The images of an obtained shard are checked whenever they are read: its file may be
//! damaged after its digest was checked.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flate2::Crc;
use sha2::{Digest, Sha256};

use crate::file::read_exact_at;
use crate::packed::bad_image;
use crate::{DataError, LabelledImage, PackedFile, Shard, ShardIndex};

/// Obtains shards, for example from another machine.
pub trait ShardStore: Debug + Send + Sync {
    /// Returns the file of this shard, whose digest has been checked. Waits until it is available.
    fn open(&self, shard: &Shard) -> Result<ShardFile, DataError>;

    /// Reports that the file of this shard was damaged after its digest was checked, so that the next one has to be checked again.
    fn recheck(&self, shard: &Shard);

    /// Announces the shards that are needed next, in this order, so that they can be obtained ahead. This is only a hint.
    fn expect(&self, shards: &[Shard]);
}

#[derive(Clone, Debug)]
pub(crate) struct ShardedFile {
    pub(crate) index: ShardIndex,
    /// The path of the index, for errors.
    path: PathBuf,
    place: Arc<Place>,
}

#[derive(Debug)]
enum Place {
    /// The packed file is on this machine. A shard is checked before its first image is read.
    Packed { file: PackedFile, checked: Mutex<Vec<bool>> },
    /// Each shard is obtained as a file. The newest files stay open.
    Store { store: Arc<dyn ShardStore>, open: Mutex<VecDeque<(u64, Arc<ShardFile>)>> },
}

/// The maximum number of open files: twice the number of shards over which the tasks of an iteration are spread, as iterations overlap.
const MOST_OPEN: usize = 2 * crate::windows::WINDOW as usize;

impl ShardedFile {
    /// Opens an index and the packed file next to it.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let index = ShardIndex::read(path)?;
        let file = PackedFile::open_unread(&path.with_extension("packed"))?;
        if file.info() != index.info() || file.len() != index.count() {
            let reason = format!("it is not the index of {}: pack the images again", file.path().display());
            return Err(DataError::corrupt(path, reason));
        }
        let checked = Mutex::new(vec![false; index.shards().len()]);
        Ok(Self { index, path: path.into(), place: Arc::new(Place::Packed { file, checked }) })
    }

    pub(crate) fn with_store(path: &Path, store: Arc<dyn ShardStore>) -> Result<Self, DataError> {
        let place = Place::Store { store, open: Mutex::default() };
        Ok(Self { index: ShardIndex::read(path)?, path: path.into(), place: Arc::new(place) })
    }

    /// Reads the image at an index below [`ShardIndex::count`].
    pub(crate) fn read(&self, index: u64) -> Result<LabelledImage, DataError> {
        let number = index / self.index.images_of_shard();
        let header = &self.index.header;
        let mut record = vec![0; header.record_bytes() as usize];
        match &*self.place {
            Place::Packed { file, checked } => {
                self.check(number, file, checked)?;
                file.read_at(&mut record, index)?;
            }
            Place::Store { store, open } => {
                let position = index % self.index.images_of_shard();
                let mut read = || {
                    let file = self.obtained(number, store.as_ref(), open)?;
                    file.read(&mut record, position).map_err(DataError::io(&self.path))
                };
                if !read()? {
                    lock(open).retain(|(of, _)| *of != number);
                    store.recheck(&self.index.shard(number));
                    if !read()? {
                        let reason =
                            format!("image {index} is damaged, in a copy of shard {number} that was just checked");
                        return Err(DataError::corrupt(&self.path, reason));
                    }
                }
            }
        }
        header.image(record).map_err(|reason| bad_image(&self.path, index, &reason))
    }

    pub(crate) fn expect(&self, shards: &[u64]) {
        if let Place::Store { store, .. } = &*self.place {
            store.expect(&shards.iter().map(|number| self.index.shard(*number)).collect::<Vec<_>>());
        }
    }

    pub(crate) fn is_here(&self) -> bool {
        matches!(*self.place, Place::Packed { .. })
    }

    /// Checks a shard of a packed file, once.
    fn check(&self, number: u64, file: &PackedFile, checked: &Mutex<Vec<bool>>) -> Result<(), DataError> {
        if lock(checked)[number as usize] {
            return Ok(());
        }
        let (shard, first) = (self.index.shard(number), number * self.index.images_of_shard());
        let mut digest = Sha256::new();
        let mut buffer = vec![0; self.index.header.record_bytes() as usize];
        let images = shard.bytes / buffer.len() as u64;
        for image in first..first + images {
            file.read_at(&mut buffer, image)?;
            digest.update(&buffer);
        }
        if digest.finalize()[..] != shard.sha256 {
            let (last, index) = (first + images - 1, self.path.display());
            let reason =
                format!("shard {number}, images {first} to {last}, has changed: its SHA-256 is not that in {index}");
            return Err(DataError::corrupt(file.path(), reason));
        }
        lock(checked)[number as usize] = true;
        Ok(())
    }

    fn obtained(
        &self,
        number: u64,
        store: &dyn ShardStore,
        open: &Mutex<VecDeque<(u64, Arc<ShardFile>)>>,
    ) -> Result<Arc<ShardFile>, DataError> {
        // The lock is held while a shard is obtained, because other threads usually need the same one.
        let mut open = lock(open);
        if let Some((_, file)) = open.iter().find(|(of, _)| *of == number) {
            return Ok(file.clone());
        }
        let file = Arc::new(store.open(&self.index.shard(number))?);
        open.truncate(MOST_OPEN - 1);
        open.push_front((number, file.clone()));
        Ok(file)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CRC-32 of each image of a shard, from the bytes whose digest was checked.
#[derive(Clone, Debug)]
pub struct ImageChecksums(Arc<[u32]>);

/// Computes the checksums of a shard's images from consecutive pieces of the shard.
#[derive(Debug)]
pub struct ImageChecksummer {
    image_bytes: usize,
    image: Crc,
    checksums: Vec<u32>,
}

impl ImageChecksummer {
    /// Starts before the first piece.
    pub fn new(shard: &Shard) -> Self {
        Self { image_bytes: shard.image_bytes, image: Crc::new(), checksums: Vec::new() }
    }

    /// Takes the next piece, which may end within an image.
    pub fn add(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let missing = self.image_bytes - self.image.amount() as usize;
            let (of_image, rest) = piece.split_at(missing.min(piece.len()));
            self.image.update(of_image);
            if of_image.len() == missing {
                self.checksums.push(self.image.sum());
                self.image.reset();
            }
            piece = rest;
        }
    }

    /// Returns the checksums, after the last piece.
    pub fn finish(self) -> ImageChecksums {
        ImageChecksums(self.checksums.into())
    }
}

/// A file with the bytes of a shard and nothing else.
#[derive(Debug)]
pub struct ShardFile {
    file: File,
    checksums: ImageChecksums,
}

impl ShardFile {
    /// Creates a shard file from a file and the checksums of its expected content.
    pub fn new(file: File, checksums: ImageChecksums) -> Self {
        Self { file, checksums }
    }

    /// Reads an image by its position in the shard. Returns `false` if its checksum is wrong.
    pub(crate) fn read(&self, image: &mut [u8], position: u64) -> io::Result<bool> {
        match read_exact_at(&self.file, image, position * image.len() as u64) {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        let mut found = Crc::new();
        found.update(image);
        Ok(self.checksums.0.get(position as usize) == Some(&found.sum()))
    }
}
