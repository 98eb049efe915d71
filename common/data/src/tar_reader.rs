//! Reads tar archives entry by entry, compressed or not, without trusting them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Take, Write};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use tar::{EntryType, GnuExtSparseHeader, Header, PaxExtensions};
use zstd::stream::read::Decoder;

use crate::DataError;

const BLOCK_BYTES: u64 = 512;
/// The maximum size of a long name or an extended header, in bytes: a Mac's attributes of a file have some kilobytes.
const MAX_METADATA_BYTES: u64 = 1 << 20;
/// A compressed archive may unpack to `MOST_TIMES` its size, and `ALWAYS_BYTES` more: tiny images with labels take 10 times, bombs 1,000.
const MOST_TIMES: u64 = 100;
const ALWAYS_BYTES: u64 = 64 << 20;

/// The first bytes of files that are compressed in another way.
const FOREIGN: [(&[u8], &str); 5] = [
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"7z\xbc\xaf", "7-zip"),
];

/// A file with one archive, or with several of them, one after another.
pub(crate) struct TarReader {
    path: PathBuf,
    source: TarSource,
    position: u64,
    /// The number of bytes of the current entry that have not been read.
    left: u64,
    /// The number of bytes that follow in its last block.
    padding: u64,
    /// The name of the current entry, for errors.
    name: Vec<u8>,
    has_entries: bool,
}

pub(crate) struct TarEntry {
    /// The name, which may not be UTF-8.
    pub(crate) name: Vec<u8>,
    /// The kind: `Regular` for any file that is stored as it is.
    pub(crate) kind: EntryType,
    pub(crate) bytes: u64,
    /// The position of the content in the file, unless that is compressed.
    pub(crate) position: Option<u64>,
    /// Whether this is the first entry of another archive in the same file.
    pub(crate) begins_archive: bool,
}

enum TarSource {
    /// A file of this many bytes.
    Plain(BufReader<File>, u64),
    /// The unpacked bytes, of which one more can be read than there may be.
    Compressed(Take<Box<dyn Read>>),
}

impl TarReader {
    /// Opens a file. Its first bytes say whether it is compressed.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let source = TarSource::open(path).map_err(DataError::io(path))?;
        let name = Vec::new();
        Ok(Self { path: path.into(), source, position: 0, left: 0, padding: 0, name, has_entries: false })
    }

    /// Skips what was not read of the current entry, and returns the next one. At the end, the whole file has been checked.
    pub(crate) fn next_entry(&mut self) -> Result<Option<TarEntry>, DataError> {
        self.next().map_err(|cause| self.error(cause))
    }

    /// Reads the content of the current entry, which must be known to be small.
    pub(crate) fn content(&mut self) -> Result<Vec<u8>, DataError> {
        let mut content = Vec::new();
        self.read_to_end(&mut content).map_err(|cause| self.error(cause))?;
        Ok(content)
    }

    /// Copies the content of the current entry to a file in the cache at `path`.
    pub(crate) fn copy_to(&mut self, mut file: &File, path: &Path) -> Result<(), DataError> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = self.read(&mut buffer).map_err(|cause| self.error(cause))?;
            if read == 0 {
                return Ok(());
            }
            file.write_all(&buffer[..read]).map_err(DataError::cache(path))?;
        }
    }

    fn error(&self, cause: io::Error) -> DataError {
        match cause.raw_os_error() {
            Some(_) => DataError::io(&self.path)(cause),
            None => DataError::corrupt(&self.path, cause.to_string()),
        }
    }

    fn next(&mut self) -> io::Result<Option<TarEntry>> {
        let (mut long_name, mut extensions) = (None, Vec::new());
        let mut begins_archive = false;
        loop {
            let is_described = long_name.is_some() || !extensions.is_empty();
            let next = self.next_header()?;
            let Some((header, begins)) = next.filter(|(_, begins)| !(*begins && is_described)) else {
                return if is_described { Err(damaged("the entry after a long name is missing")) } else { Ok(None) };
            };
            begins_archive |= begins;
            self.begin(header.path_bytes().into(), header.entry_size()?)?;
            match header.entry_type() {
                EntryType::GNULongName => {
                    let mut name = self.metadata()?;
                    name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
                    long_name = Some(name);
                }
                EntryType::XHeader => extensions = self.metadata()?,
                EntryType::GNULongLink | EntryType::XGlobalHeader => {}
                _ => return self.entry(&header, long_name, &extensions, begins_archive).map(Some),
            }
        }
    }

    /// Returns the entry of a header and of what was read before it.
    fn entry(
        &mut self,
        header: &Header,
        long_name: Option<Vec<u8>>,
        extensions: &[u8],
        begins_archive: bool,
    ) -> io::Result<TarEntry> {
        let mut kind = header.entry_type();
        let (mut name, mut bytes) = (long_name.unwrap_or_else(|| header.path_bytes().into()), self.left);
        for extension in PaxExtensions::new(extensions) {
            let extension = extension.map_err(damaged)?;
            match (extension.key_bytes(), extension.value_bytes()) {
                (b"path", value) => name = value.into(),
                (b"size", _) => {
                    bytes = extension.value().ok().and_then(|size| size.parse().ok()).ok_or_else(no_size)?;
                }
                (key, _) if key.starts_with(b"GNU.sparse.") => kind = EntryType::GNUSparse,
                _ => {}
            }
        }
        if kind == EntryType::GNUSparse && header.as_gnu().is_some_and(tar::GnuHeader::is_extended) {
            let mut more = GnuExtSparseHeader::new();
            more.isextended = [1];
            while more.is_extended() {
                self.source.read_exact(more.as_mut_bytes()).map_err(|_| self.cut())?;
                self.position += BLOCK_BYTES;
            }
        }
        self.begin(name.clone(), bytes)?;
        kind = match kind {
            // Old archives have no kind for folders.
            EntryType::Regular if name.ends_with(b"/") => EntryType::Directory,
            EntryType::Continuous => EntryType::Regular,
            kind => kind,
        };
        let position = matches!(self.source, TarSource::Plain(..)).then_some(self.position);
        Ok(TarEntry { name, kind, bytes, position, begins_archive })
    }

    fn begin(&mut self, name: Vec<u8>, bytes: u64) -> io::Result<()> {
        let with_padding = bytes.checked_next_multiple_of(BLOCK_BYTES).ok_or_else(no_size)?;
        (self.name, self.left, self.padding) = (name, bytes, with_padding - bytes);
        Ok(())
    }

    /// Reads the content of an entry that describes the next one.
    fn metadata(&mut self) -> io::Result<Vec<u8>> {
        if self.left > MAX_METADATA_BYTES {
            return Err(damaged(format!(
                "a name or header of {} bytes: expected at most {MAX_METADATA_BYTES}",
                self.left
            )));
        }
        let mut content = Vec::new();
        self.read_to_end(&mut content)?;
        Ok(content)
    }

    /// Returns the next header, and whether another archive begins with it. There is none at the end of the last archive.
    fn next_header(&mut self) -> io::Result<Option<(Header, bool)>> {
        self.skip()?;
        let mut zeros = 0;
        loop {
            let (at, mut header) = (self.position, Header::new_old());
            let mut block = Vec::new();
            self.source.by_ref().take(BLOCK_BYTES).read_to_end(&mut block)?;
            self.position += block.len() as u64;
            if block.is_empty() {
                if self.has_entries && zeros < 2 {
                    let reason = "ends without the two blocks of zeros that end an archive: is it cut short?";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, reason));
                }
                return Ok(None);
            }
            let is_whole = block.len() as u64 == BLOCK_BYTES;
            if is_whole && block.iter().all(|byte| *byte == 0) {
                zeros += 1;
                continue;
            }
            if is_whole {
                header.as_mut_bytes().copy_from_slice(&block);
            }
            // The sum is that of a header with spaces in place of the sum.
            let sum =
                block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) });
            if !is_whole || header.cksum().ok() != Some(sum.sum()) {
                return Err(match FOREIGN.iter().find(|(first, _)| at == 0 && block.starts_with(first)) {
                    Some((_, name)) => {
                        damaged(format!("it is compressed with {name}; expected a plain one, gzip or zstd"))
                    }
                    None => damaged(format!("there is no entry at byte {at}")),
                });
            }
            if zeros == 1 || (zeros > 0 && !self.has_entries) {
                return Err(damaged(format!("there are zeros instead of an entry before byte {at}")));
            }
            self.has_entries = true;
            return Ok(Some((header, zeros > 0)));
        }
    }

    fn skip(&mut self) -> io::Result<()> {
        let rest = self.left + self.padding;
        let skipped = match &mut self.source {
            TarSource::Plain(file, bytes) => {
                let skipped = rest.min(bytes.saturating_sub(self.position));
                file.seek_relative(skipped.cast_signed())?;
                skipped
            }
            source @ TarSource::Compressed(_) => io::copy(&mut source.take(rest), &mut io::sink())?,
        };
        if skipped < rest {
            return Err(self.cut());
        }
        self.position += rest;
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    fn cut(&self) -> io::Error {
        let reason = format!("ends in the middle of {}: is it cut short?", String::from_utf8_lossy(&self.name));
        io::Error::new(ErrorKind::UnexpectedEof, reason)
    }
}

impl Read for TarReader {
    /// Reads from the content of the current entry. It is an error if the file ends before.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.by_ref().take(self.left).read(buffer)?;
        if read == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(self.cut());
        }
        self.left -= read as u64;
        self.position += read as u64;
        Ok(read)
    }
}

impl TarSource {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut file = BufReader::new(file);
        let first: Vec<u8> = file.fill_buf()?.iter().take(4).copied().collect();
        let unpacked: Box<dyn Read> = match first[..] {
            [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(file)),
            // A parallel compressor begins with a frame of its own, which is skipped.
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Box::new(Decoder::with_buffer(file)?),
            _ => return Ok(Self::Plain(file, bytes)),
        };
        let most = bytes.saturating_mul(MOST_TIMES).saturating_add(ALWAYS_BYTES);
        Ok(Self::Compressed(unpacked.take(most.saturating_add(1))))
    }
}

impl Read for TarSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let unpacked = match self {
            Self::Plain(file, _) => return file.read(buffer),
            Self::Compressed(unpacked) => unpacked,
        };
        let read = unpacked.read(buffer).map_err(|cause| match cause.raw_os_error() {
            Some(_) => cause,
            None => io::Error::new(cause.kind(), format!("cannot be unpacked: {cause}")),
        })?;
        if unpacked.limit() == 0 {
            let reason =
                format!("unpacks to more than {MOST_TIMES} times its size: expected images, which do not shrink");
            return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
        }
        Ok(read)
    }
}

fn damaged(reason: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("is no whole tar archive: {reason}"))
}

fn no_size() -> io::Error {
    damaged("an entry has an impossible size")
}
