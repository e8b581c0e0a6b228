//! Models of a hub that speaks the interface of the Hugging Face Hub, brought into the library file by file.
//!
//! A revision is pinned to its commit before anything is fetched, every file is held against the sum that the hub publishes
//! (SHA-256 of large files, the git blob's SHA-1 of others), and what was fetched stays for the next try: a connection that
//! breaks costs no bytes twice.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::{Client, Response, StatusCode, header};
use serde::Deserialize;
use sha1::{Digest, Sha1};

use super::bundle::{check_usable, may_be_of_model, settle_folder};
use super::library::{Library, LibraryError};
use super::provenance::{FileSum, PROVENANCE, Provenance, sum_of};
use super::tensors::WEIGHTS;
use super::{ModelFolder, facts};

/// The hub that is asked where nobody names another.
const HUB: &str = "https://huggingface.co";
/// Tries of a file that fails for a time; each goes on where the last one ended.
const TRIES: u32 = 6;
/// The wait after the first failure; it doubles.
const WAIT: Duration = Duration::from_millis(500);
/// The longest wait for a connection, and for the next bytes.
const CONNECT: Duration = Duration::from_secs(15);
const SILENCE: Duration = Duration::from_secs(60);
/// What stands for itself in the path of an address is not among these.
const IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?');
/// Folders of other engines' copies of the weights.
const OTHERS: [&str; 4] = ["onnx/", "openvino/", "coreml/", "tf/"];

/// Where models come from, and who asks.
#[derive(Clone, Default)]
pub struct Hub {
    /// The address of the hub, or of a mirror; none is huggingface.co.
    pub endpoint: Option<String>,
    /// A token for models that not everybody may have.
    pub token: Option<String>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "***");
        f.debug_struct("Hub")
            .field("endpoint", &self.endpoint)
            .field("token", &token)
            .finish()
    }
}

/// What the hub says of a revision.
#[derive(Deserialize)]
struct Told {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

/// A failure, and whether another try may help.
struct Failure {
    message: String,
    for_a_time: bool,
}

impl Failure {
    fn of(e: &reqwest::Error) -> Self {
        let mut message = e.to_string();
        let mut cause = std::error::Error::source(e);
        while let Some(inner) = cause {
            message = format!("{message}: {inner}");
            cause = inner.source();
        }
        Self {
            message,
            for_a_time: !e.is_builder() && !e.is_redirect(),
        }
    }

    fn lasting(message: String) -> Self {
        Self {
            message,
            for_a_time: false,
        }
    }
}

/// Brings a model into the library: `id`, or `id@revision`; without a revision the hub's main one.
///
/// # Errors
/// [`LibraryError`] if the hub has no such model or refuses it, a file is not what the hub says, or the model is of a kind that
/// this version can't use. What was fetched stays for the next try.
pub fn pull(
    hub: &Hub,
    name: &str,
    library: &Library,
    overwrite: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Provenance, LibraryError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| LibraryError::io(library.root(), e))?;
    runtime.block_on(Pull::of(hub, name, library)?.run(overwrite, progress))
}

/// One pull under way.
struct Pull<'l> {
    id: String,
    revision: String,
    endpoint: String,
    token: Option<String>,
    client: Client,
    library: &'l Library,
}

impl<'l> Pull<'l> {
    fn of(hub: &Hub, name: &str, library: &'l Library) -> Result<Self, LibraryError> {
        let (id, revision) = name.split_once('@').unwrap_or((name, "main"));
        super::library::check_id(id)?;
        let told = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        if revision.is_empty() || !revision.chars().all(told) || revision.contains("..") {
            return Err(LibraryError::Refused(format!(
                "`{revision}` is no revision of a model"
            )));
        }
        let endpoint = hub.endpoint.as_deref().unwrap_or(HUB).trim_end_matches('/');
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            return Err(LibraryError::Refused(format!(
                "`{endpoint}` is no address of a hub: it begins with https://"
            )));
        }
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(concat!("nightmill/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| LibraryError::Refused(format!("no connection can be opened: {e}")))?;
        Ok(Self {
            id: id.to_owned(),
            revision: revision.to_owned(),
            endpoint: endpoint.to_owned(),
            token: hub.token.clone(),
            client,
            library,
        })
    }

    async fn run(
        &self,
        overwrite: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Provenance, LibraryError> {
        let target = self.library.place_of_new(&self.id, overwrite)?;
        let told = self.told().await?;
        let wanted = self.wanted(&told)?;
        // By commit: another one begins anew.
        let folder = format!(".pull-{}@{}", self.id.replace('/', "--"), told.sha);
        let folder = self.library.root().join(folder);
        std::fs::create_dir_all(&folder).map_err(|e| LibraryError::io(&folder, e))?;
        let _alone = alone(&folder)?;
        let mut files = BTreeMap::new();
        for (at, sibling) in wanted.iter().enumerate() {
            let name = &sibling.rfilename;
            let bytes = sibling.lfs.as_ref().map(|lfs| lfs.size).or(sibling.size);
            let size = bytes.map_or_else(String::new, |bytes| format!(", {bytes} bytes"));
            progress(&format!("{} of {}: {name}{size}", at + 1, wanted.len()));
            let sum = self.fetch(&told.sha, sibling, &folder).await?;
            files.insert(name.clone(), sum);
        }
        let model = ModelFolder::open(&folder)?;
        check_usable(&model)?;
        let head = Provenance {
            id: self.id.clone(),
            revision: Some(told.sha.clone()),
            source: Some(format!("{}/{}", self.endpoint, self.id)),
            licence: facts::licence(&model)?,
            files,
        };
        self.settle(&folder, &head, &target, overwrite)?;
        Ok(head)
    }

    /// Moves the folder to its place, without what only a pull needs.
    fn settle(
        &self,
        folder: &Path,
        head: &Provenance,
        target: &Path,
        overwrite: bool,
    ) -> Result<(), LibraryError> {
        let failed = |e: std::io::Error| LibraryError::io(folder, e);
        let told = serde_json::to_vec_pretty(head).map_err(|e| failed(e.into()))?;
        std::fs::write(folder.join(PROVENANCE), told).map_err(failed)?;
        let _ = std::fs::remove_file(folder.join(LOCK));
        settle_folder(folder, target, overwrite)
    }

    fn request(&self, url: &str) -> reqwest::RequestBuilder {
        let request = self.client.get(url);
        match &self.token {
            // Redirects to other hosts do not get it.
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    fn refused(&self, status: StatusCode, what: &str) -> Failure {
        let hint = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                ": the hub knows no such model, or wants a token that may have it (HF_TOKEN)"
            }
            StatusCode::NOT_FOUND => ": there is no such model, or no such revision",
            _ => "",
        };
        Failure {
            message: format!("{what}: the hub answers {status}{hint}"),
            for_a_time: status.is_server_error()
                || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status),
        }
    }

    /// Tries until it works, or can't.
    async fn tried<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        what: &str,
        mut once: impl FnMut() -> F,
    ) -> Result<T, LibraryError> {
        let (mut wait, mut attempt) = (WAIT, 0);
        loop {
            attempt += 1;
            match once().await {
                Ok(value) => return Ok(value),
                Err(failure) if failure.for_a_time && attempt < TRIES => {
                    tracing::warn!("{what}: {}; trying again", failure.message);
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                Err(failure) => {
                    let message = failure.message;
                    return Err(LibraryError::Refused(match failure.for_a_time {
                        true => format!(
                            "{message} (tried {attempt} times; what is here stays for the next pull)"
                        ),
                        false => message,
                    }));
                }
            }
        }
    }

    async fn told(&self) -> Result<Told, LibraryError> {
        let url = format!(
            "{}/api/models/{}/revision/{}?blobs=true",
            self.endpoint,
            self.id,
            self.revision.replace('/', "%2F")
        );
        self.tried(&self.id, || async {
            let answer = self
                .request(&url)
                .send()
                .await
                .map_err(|e| Failure::of(&e))?;
            if !answer.status().is_success() {
                return Err(self.refused(answer.status(), &self.id));
            }
            answer.json().await.map_err(|e| Failure::of(&e))
        })
        .await
    }

    /// The files of the model, those of other engines left out.
    fn wanted<'t>(&self, told: &'t Told) -> Result<Vec<&'t Sibling>, LibraryError> {
        let refuse = |problem: String| Err(LibraryError::Refused(problem));
        let hex = |c: char| c.is_ascii_hexdigit();
        if told.sha.len() < 7 || !told.sha.chars().all(hex) {
            return refuse(format!(
                "{}: the hub names no commit, but `{}`",
                self.id, told.sha
            ));
        }
        let is_commit = self.revision.len() == 40 && self.revision.chars().all(hex);
        if is_commit && self.revision != told.sha {
            return refuse(format!(
                "{}: asked for the commit {}, the hub answers with {}",
                self.id, self.revision, told.sha
            ));
        }
        let of_model = |file: &&Sibling| {
            let name = &file.rfilename;
            may_be_of_model(name) && !OTHERS.iter().any(|folder| name.starts_with(folder))
        };
        let wanted: Vec<&Sibling> = told.siblings.iter().filter(of_model).collect();
        let weights = [WEIGHTS, "model.safetensors.index.json"];
        let are_there = |file: &&Sibling| {
            let name = file.rfilename.rsplit('/').next();
            name.is_some_and(|name| weights.contains(&name))
        };
        match wanted.iter().any(are_there) {
            true => Ok(wanted),
            false => refuse(format!(
                "{}: it has no {WEIGHTS}; other files of weights can run code when they are opened, and are not read",
                self.id
            )),
        }
    }

    /// Fetches a file, or what is missing of it, and holds it against its sum.
    async fn fetch(
        &self,
        commit: &str,
        file: &Sibling,
        folder: &Path,
    ) -> Result<FileSum, LibraryError> {
        let path = folder.join(&file.rfilename);
        let part = PathBuf::from(format!("{}.part", path.display()));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| LibraryError::io(parent, e))?;
        }
        if !path.exists() {
            let url = format!(
                "{}/{}/resolve/{commit}/{}",
                self.endpoint,
                self.id,
                utf8_percent_encode(&file.rfilename, IN_PATHS)
            );
            self.tried(&file.rfilename, || self.append(&url, file, &part))
                .await?;
        } else {
            std::fs::rename(&path, &part).map_err(|e| LibraryError::io(&part, e))?;
        }
        let sum = check(file, &part);
        match sum {
            Ok(sum) => {
                std::fs::rename(&part, &path).map_err(|e| LibraryError::io(&path, e))?;
                Ok(sum)
            }
            Err(problem) => {
                // It would be wrong the next time, too.
                let _ = std::fs::remove_file(&part);
                Err(problem)
            }
        }
    }

    /// Appends to what is there of a file.
    async fn append(&self, url: &str, file: &Sibling, part: &Path) -> Result<(), Failure> {
        let io = |e: std::io::Error| Failure::lasting(format!("{}: {e}", part.display()));
        let whole = file.lfs.as_ref().map(|lfs| lfs.size).or(file.size);
        let there = std::fs::metadata(part).map_or(0, |found| found.len());
        if there > 0 && whole == Some(there) {
            return Ok(());
        }
        let mut request = self
            .request(url)
            .header(header::ACCEPT_ENCODING, "identity");
        if there > 0 {
            request = request.header(header::RANGE, format!("bytes={there}-"));
        }
        let mut answer = request.send().await.map_err(|e| Failure::of(&e))?;
        let goes_on = answer.status() == StatusCode::PARTIAL_CONTENT && begins_at(&answer, there);
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            std::fs::remove_file(part).map_err(io)?;
        }
        if !answer.status().is_success() {
            let mut failure = self.refused(answer.status(), &file.rfilename);
            failure.for_a_time |= answer.status() == StatusCode::RANGE_NOT_SATISFIABLE;
            return Err(failure);
        }
        let mut out = match there > 0 && goes_on {
            true => OpenOptions::new().append(true).open(part).map_err(io)?,
            false => File::create(part).map_err(io)?,
        };
        let mut written = if goes_on { there } else { 0 };
        while let Some(bytes) = answer.chunk().await.map_err(|e| Failure::of(&e))? {
            written += bytes.len() as u64;
            if whole.is_some_and(|whole| written > whole) {
                return Err(Failure::lasting(format!(
                    "{}: the hub sends more bytes than it names",
                    file.rfilename
                )));
            }
            out.write_all(&bytes).map_err(io)?;
        }
        out.sync_all().map_err(io)?;
        match whole {
            Some(whole) if written < whole => Err(Failure {
                message: format!("{}: {written} of {whole} bytes came", file.rfilename),
                for_a_time: true,
            }),
            _ => Ok(()),
        }
    }
}

/// Whether an answer of a part begins where it was asked to.
fn begins_at(answer: &Response, there: u64) -> bool {
    let range = answer.headers().get(header::CONTENT_RANGE);
    let range = range.and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {there}-")))
}

/// Holds a file against what the hub says of it.
fn check(file: &Sibling, path: &Path) -> Result<FileSum, LibraryError> {
    let failed = |e: std::io::Error| LibraryError::io(path, e);
    let mut reader = File::open(path).map_err(failed)?;
    let sum = sum_of(&mut reader).map_err(failed)?;
    let wrong = |found: &str, named: &str| {
        Err(LibraryError::Refused(format!(
            "{}: it is not what the hub says: its sum is {found}, and the hub names {named}",
            file.rfilename
        )))
    };
    match (&file.lfs, &file.blob_id) {
        (Some(lfs), _) if lfs.sha256 != sum.sha256 => wrong(&sum.sha256, &lfs.sha256),
        (None, Some(blob)) => {
            let found = blob_id(path).map_err(failed)?;
            if found == *blob {
                Ok(sum)
            } else {
                wrong(&found, blob)
            }
        }
        (Some(_), _) => Ok(sum),
        (None, None) => Err(LibraryError::Refused(format!(
            "{}: the hub names no sum of it, so that nobody can tell whether it is what it should be",
            file.rfilename
        ))),
    }
}

/// The id that git gives a file's content.
fn blob_id(path: &Path) -> std::io::Result<String> {
    let bytes = std::fs::read(path)?;
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(&bytes);
    Ok(super::provenance::hex(&hash.finalize()))
}

/// The file that keeps two pulls of one revision apart.
const LOCK: &str = ".lock";

/// Waits for no one: another pull of the same revision has the folder.
fn alone(folder: &Path) -> Result<File, LibraryError> {
    let path = folder.join(LOCK);
    let file = File::create(&path).map_err(|e| LibraryError::io(&path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(LibraryError::Refused(format!(
            "another pull of this model is under way in `{}`",
            folder.display()
        ))),
        Err(std::fs::TryLockError::Error(e)) => Err(LibraryError::io(&path, e)),
    }
}
