//! Keys of a cluster: all members show one certificate, and speak to nobody who does not.
//!
//! The folder is the secret that members share. It holds an authority's certificate (its key is thrown away), one certificate
//! that it has signed, for the name `nightmill`, and the key of that. Servers ask clients for it, and clients servers.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ballista_core::extension::EndpointOverrideFn;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::sync::Arc;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};

use super::ClusterError;

/// The name that the certificate is of, on whatever machine it is shown.
const NAME: &str = "nightmill";
const FILES: [&str; 3] = ["authority.pem", "member.pem", "member.key"];

/// The keys of a cluster.
#[derive(Clone)]
pub struct ClusterKeys {
    authority: String,
    member: String,
    key: String,
}

impl std::fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKeys")
    }
}

impl ClusterKeys {
    /// Reads them from a folder.
    ///
    /// # Errors
    /// If one is missing, or the secret one can be read by others.
    pub fn read(folder: &Path) -> Result<Self, ClusterError> {
        let wrong = |problem: String| ClusterError::Keys {
            folder: folder.to_owned(),
            problem,
        };
        let read = |name: &str| {
            let text = fs::read_to_string(folder.join(name));
            text.map_err(|e| wrong(format!("{name}: {e}; `nightmill keys DIR` makes them")))
        };
        Self::choose_library();
        let [authority, member, key] = FILES;
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(folder.join(key)).map(|of| of.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o077 != 0) {
            return Err(wrong(format!(
                "{key} can be read by other users of this machine; take that from them with chmod 600"
            )));
        }
        Ok(Self {
            authority: read(authority)?,
            member: read(member)?,
            key: read(key)?,
        })
    }

    /// Two libraries of cryptography are in the program, and TLS asks which one it is to use.
    fn choose_library() {
        // It was chosen before, if this fails.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }

    fn identity(&self) -> Identity {
        Identity::from_pem(&self.member, &self.key)
    }

    /// A server that speaks to members only.
    pub(super) fn server(&self, server: Server) -> Result<Server, ClusterError> {
        let tls = ServerTlsConfig::new()
            .identity(self.identity())
            .client_ca_root(Certificate::from_pem(&self.authority));
        server
            .tls_config(tls)
            .map_err(|e| ClusterError::Engine(in_full(&e)))
    }

    /// What makes an endpoint one that speaks to members only.
    pub(super) fn endpoints(&self) -> EndpointOverrideFn {
        let tls = ClientTlsConfig::new()
            .identity(self.identity())
            .ca_certificate(Certificate::from_pem(&self.authority))
            .domain_name(NAME);
        Arc::new(move |endpoint: Endpoint| {
            // Whoever made the endpoint may not have known that there are keys.
            let address = endpoint
                .uri()
                .to_string()
                .replacen("http://", "https://", 1);
            let secure = Endpoint::from_shared(address)?
                .connect_timeout(std::time::Duration::from_secs(20))
                .tcp_nodelay(true)
                .tcp_keepalive(Some(std::time::Duration::from_secs(60)))
                .http2_keep_alive_interval(std::time::Duration::from_secs(60))
                .keep_alive_while_idle(true)
                .tls_config(tls.clone())?;
            Ok(secure)
        })
    }
}

/// An error with its causes: those of connections say little on their own.
pub(super) fn in_full(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_told = inner.to_string();
        if !told.contains(&inner_told) {
            told.push_str(": ");
            told.push_str(&inner_told);
        }
        cause = inner.source();
    }
    told
}

/// Makes the keys of a cluster in a new folder.
///
/// # Errors
/// If the folder is there already, or can't be written.
pub fn make_keys(folder: &Path) -> Result<Vec<PathBuf>, ClusterError> {
    let wrong = |problem: String| ClusterError::Keys {
        folder: folder.to_owned(),
        problem,
    };
    let failed = |e: rcgen::Error| wrong(e.to_string());
    let mut authority = CertificateParams::new(Vec::new()).map_err(failed)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    authority
        .distinguished_name
        .push(rcgen::DnType::CommonName, "nightmill cluster");
    let key_of_authority = KeyPair::generate().map_err(failed)?;
    let certificate = authority.self_signed(&key_of_authority).map_err(failed)?;
    let issuer = Issuer::new(authority, key_of_authority);
    let key = KeyPair::generate().map_err(failed)?;
    let member = CertificateParams::new(vec![NAME.to_owned()]).map_err(failed)?;
    let member = member.signed_by(&key, &issuer).map_err(failed)?;
    fs::create_dir(folder).map_err(|e| wrong(e.to_string()))?;
    let texts = [certificate.pem(), member.pem(), key.serialize_pem()];
    let mut written = Vec::new();
    for (name, text) in FILES.iter().zip(texts) {
        use std::os::unix::fs::OpenOptionsExt;
        let path = folder.join(name);
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| wrong(format!("{name}: {e}")))?;
        written.push(path);
    }
    Ok(written)
}
