//! Connections to buckets and web servers, with the credentials that their own tools would take.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{BackoffConfig, ClientOptions, Error, ObjectStore, RetryConfig};

use super::error::told;
use super::location::{Kind, Location};
use super::{StoreError, metadata_service, profile};

/// A request is tried so many times again after a server error, a lost connection or a timeout,
const RETRIES: usize = 8;
/// but no longer than this,
const RETRIED_FOR: Duration = Duration::from_secs(120);
/// with waits from a fifth of a second up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A server that can't be connected to.
const CONNECT: Duration = Duration::from_secs(10);
/// One request with its answer; files come and go in pieces of some megabytes.
const REQUEST: Duration = Duration::from_secs(120);

/// An open bucket.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub store: Arc<dyn ObjectStore>,
    kind: Kind,
    /// Must not appear in what is told.
    secrets: Arc<Vec<String>>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Connection {
    /// Connects to the bucket of an address. Nothing is asked yet, but for a cloud's service of credentials where no others
    /// are given.
    pub fn open(at: &Location) -> Result<Self, StoreError> {
        let mut secrets = Vec::new();
        let store = match at.kind {
            Kind::S3 => s3(at, &mut secrets)?,
            Kind::Google => google(at)?,
            Kind::Azure => azure(at)?,
            Kind::Web => web(at)?,
        };
        Ok(Self {
            store,
            kind: at.kind,
            secrets: Arc::new(secrets),
        })
    }

    #[cfg(test)]
    pub fn of_test(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            kind: Kind::S3,
            secrets: Arc::default(),
        }
    }

    /// An error of the library as people read it: the address, the cause, and what to do.
    pub fn told(&self, at: &Location, error: &Error) -> StoreError {
        let text = told(&error.to_string(), &self.secrets);
        let refused = ["status code: 401", "status code: 403", "status code: 400"];
        let advice = match error {
            Error::NotFound { .. } => {
                "check the address; buckets tell capital from small letters".to_owned()
            }
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => advice(self.kind),
            _ if text.contains("path segment") => {
                "a name there has an empty part, `.` or `..` in it, and what it stands among can't be listed: name a deeper \
                 folder or single objects, or give that object another name"
                    .to_owned()
            }
            _ if refused.iter().any(|code| text.contains(code)) => advice(self.kind),
            _ if text.contains("301") || text.contains("AuthorizationHeaderMalformed") => {
                "the bucket may be of another region: set AWS_REGION".to_owned()
            }
            _ => format!(
                "check the address and the network, and run it again (it was tried {RETRIES} times more where that may help)"
            ),
        };
        StoreError::new(at.shown(), text, advice)
    }
}

fn advice(kind: Kind) -> String {
    let variables = match kind {
        Kind::S3 => {
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE and AWS_REGION (AWS_ENDPOINT_URL \
             for a server that is not Amazon's; AWS_SKIP_SIGNATURE=true for a public bucket), and what they allow"
        }
        Kind::Google => {
            "check GOOGLE_APPLICATION_CREDENTIALS or run `gcloud auth application-default login` \
             (GOOGLE_SKIP_SIGNATURE=true for a public bucket), and what they allow"
        }
        Kind::Azure => {
            "check AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or AZURE_CLIENT_ID, \
             AZURE_TENANT_ID and AZURE_CLIENT_SECRET (AZURE_USE_AZURE_CLI=true to ask `az`), and what they allow"
        }
        Kind::Web => {
            "check the address: a signed one is good for a while and for one kind of request"
        }
    };
    variables.to_owned()
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: LONGEST_WAIT,
            base: 2.0,
        },
        max_retries: RETRIES,
        retry_timeout: RETRIED_FOR,
    }
}

/// Without encryption only where an address says so.
fn options(endpoint: Option<&str>) -> ClientOptions {
    let plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    ClientOptions::new()
        .with_connect_timeout(CONNECT)
        .with_timeout(REQUEST)
        .with_allow_http(plain)
}

fn any_of(names: &[&str]) -> bool {
    names.iter().any(|name| variable(name).is_some())
}

fn missing(at: &Location) -> StoreError {
    let problem = "no credentials were found, and this machine has no service that hands them out";
    StoreError::new(at.shown(), problem, advice(at.kind))
}

fn built<T: ObjectStore>(
    at: &Location,
    built: object_store::Result<T>,
) -> Result<Arc<dyn ObjectStore>, StoreError> {
    match built {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(StoreError::new(
            at.shown(),
            told(&error.to_string(), &[]),
            advice(at.kind),
        )),
    }
}

/// Keys of the environment go before those of a profile, and those before what a container or machine hands out.
fn s3(at: &Location, secrets: &mut Vec<String>) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let given = any_of(&[
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_SKIP_SIGNATURE",
    ]);
    let profile = profile::read(&variable, !given)
        .map_err(|problem| StoreError::new(at.shown(), problem, advice(at.kind)))?;
    let endpoint = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
    let endpoint = endpoint
        .or_else(|| variable("AWS_ENDPOINT"))
        .or(profile.endpoint_url);
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(at.bucket())
        .with_client_options(options(endpoint.as_deref()))
        .with_retry(retries());
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let (false, Some(region)) = (
        any_of(&["AWS_REGION", "AWS_DEFAULT_REGION"]),
        profile.region,
    ) {
        builder = builder.with_region(region);
    }
    let container = [
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ];
    if given {
        // The library takes them from the environment.
    } else if let (Some(id), Some(key)) = (profile.access_key_id, profile.secret_access_key) {
        secrets.push(key.clone());
        builder = builder.with_access_key_id(id).with_secret_access_key(key);
        if let Some(token) = profile.session_token {
            secrets.push(token.clone());
            builder = builder.with_token(token);
        }
    } else if !any_of(&container) && !metadata_service::is_there(at.kind, &variable) {
        return Err(missing(at));
    }
    built(at, builder.build())
}

fn google(at: &Location) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let given = any_of(&[
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_SKIP_SIGNATURE",
        "SERVICE_ACCOUNT",
    ]);
    let home = variable("HOME").map(PathBuf::from);
    let default = home.map(|home| home.join(".config/gcloud/application_default_credentials.json"));
    let logged_in = default.is_some_and(|file| file.is_file());
    if !given && !logged_in && !metadata_service::is_there(at.kind, &variable) {
        return Err(missing(at));
    }
    let endpoint = variable("GOOGLE_BASE_URL");
    let builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(at.bucket())
        .with_client_options(options(endpoint.as_deref()))
        .with_retry(retries());
    built(at, builder.build())
}

fn azure(at: &Location) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let given = any_of(&[
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_MASTER_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_USE_AZURE_CLI",
        "AZURE_STORAGE_USE_EMULATOR",
        "AZURE_SKIP_SIGNATURE",
    ]);
    if !given && !metadata_service::is_there(at.kind, &variable) {
        return Err(missing(at));
    }
    let endpoint = variable("AZURE_STORAGE_ENDPOINT").or_else(|| variable("AZURE_ENDPOINT"));
    let emulated = variable("AZURE_STORAGE_USE_EMULATOR").is_some_and(|v| v == "true" || v == "1");
    let endpoint = endpoint.or_else(|| emulated.then(|| "http://127.0.0.1".to_owned()));
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(at.bucket())
        .with_client_options(options(endpoint.as_deref()))
        .with_retry(retries());
    if at.authority.contains('@') {
        let address = format!("abfss://{}/", at.authority);
        builder = builder.with_url(address);
    }
    built(at, builder.build())
}

fn web(at: &Location) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let mut server = format!("{}://{}", at.scheme, at.authority);
    if let Some(query) = &at.query {
        server.push_str(&format!("/?{query}"));
    }
    // A file comes in one answer, which takes as long as it takes; one that stalls is given up by whoever reads it.
    let options = options(Some(&server)).with_timeout_disabled();
    let builder = HttpBuilder::new()
        .with_url(server)
        .with_client_options(options)
        .with_retry(retries());
    built(at, builder.build())
}
