//! A server that speaks S3 (PyPI's moto), started by the test, and a proxy before it that spoils requests as told.

mod proxy;
mod server;

pub use proxy::{Proxy, Spoil};
pub use server::Bucket;
