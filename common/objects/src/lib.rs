//! Object stores by their URLs: S3, Google Cloud Storage, Azure, or a file system behind the same interface.
//!
//! A program that was built without the feature `object-store` has the same functions, but `open` returns an error.

#[cfg(not(feature = "object-store"))]
mod absent;
#[cfg(feature = "object-store")]
mod open;

#[cfg(not(feature = "object-store"))]
pub use absent::Objects;
#[cfg(feature = "object-store")]
pub use open::Objects;

/// Returns `true` if a place is a URL, not a folder.
pub fn is_url(place: &str) -> bool {
    place.contains("://")
}
