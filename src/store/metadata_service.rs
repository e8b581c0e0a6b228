//! Whether a cloud's machine would hand out credentials: asked before anything else is, so that a machine that is in no cloud
//! says at once that credentials are missing.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::location::Kind;

/// On its own network the service answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where Amazon and Azure have it.
const LINK_LOCAL: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254)),
    80,
);

/// Whether the service of this cloud can be connected to.
pub(super) fn is_there(kind: Kind, variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let off = |name: &str| variable(name).is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let addresses = match kind {
        Kind::S3 if off("AWS_EC2_METADATA_DISABLED") => return false,
        // A service of one's own is asked itself.
        Kind::S3 if variable("AWS_METADATA_ENDPOINT").is_some() => return true,
        Kind::Azure if variable("IDENTITY_ENDPOINT").is_some() => return true,
        Kind::S3 | Kind::Azure => vec![LINK_LOCAL],
        Kind::Google => {
            let host = variable("GCE_METADATA_HOST");
            let host = host.unwrap_or_else(|| "metadata.google.internal".to_owned());
            let found = (host.as_str(), 80).to_socket_addrs();
            found.map(Iterator::collect).unwrap_or_default()
        }
        Kind::Web => return true,
    };
    let mut addresses = addresses.iter();
    addresses.any(|address| TcpStream::connect_timeout(address, PATIENCE).is_ok())
}
