//! `FROM 'file.parquet'`: files, folders and globs as tables.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProviderList, DynamicFileCatalog, TableProvider, UrlTableFactory,
};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionContext;

use crate::store::{Fetched, fetched, is_address};
use crate::trace::{SourceFormat, discover};

/// Looks at a file before it is read; says what is wrong with it.
pub type CheckFile = Arc<dyn Fn(&Path) -> std::result::Result<(), String> + Send + Sync>;

/// Makes a file of nightmill's own columns of what a path names; none where it is read as it is. Says what is wrong with it.
pub type MakeTable =
    Arc<dyn Fn(&str) -> std::result::Result<Option<PathBuf>, String> + Send + Sync>;

/// Resolves names that are no tables as paths, by the rules of the other commands.
pub struct FilesAsTables {
    context: SessionContext,
    check: Option<CheckFile>,
    /// Rows of Delta tables, for as long as there is the session.
    brought: Mutex<Vec<Fetched>>,
    make: Option<MakeTable>,
}

impl std::fmt::Debug for FilesAsTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilesAsTables").finish_non_exhaustive()
    }
}

impl FilesAsTables {
    /// A session in which a quoted path is a table. With a check, every file must pass it.
    pub fn enable(context: SessionContext, check: Option<CheckFile>) -> SessionContext {
        Self::enable_making(context, check, None)
    }

    /// The same, and files of other formats are made into tables by `make` first.
    pub fn enable_making(
        context: SessionContext,
        check: Option<CheckFile>,
        make: Option<MakeTable>,
    ) -> SessionContext {
        let factory = Arc::new(Self {
            context: context.clone(),
            check,
            brought: Mutex::default(),
            make,
        });
        let list: Arc<dyn CatalogProviderList> = Arc::new(DynamicFileCatalog::new(
            Arc::clone(context.state().catalog_list()),
            factory,
        ));
        context
            .into_state_builder()
            .with_catalog_list(list)
            .build()
            .into()
    }

    /// A path as it is, or where the rows of the Delta table are that it names.
    fn brought(&self, path: &str) -> Result<String> {
        if is_address(path) {
            return Ok(path.to_owned());
        }
        let bring = || fetched(vec![path.to_owned()], true);
        // Bringing waits in a runtime of its own, which one that plans a query can't.
        let brought = std::thread::scope(|scope| scope.spawn(bring).join());
        let brought = brought.map_err(|_| {
            DataFusionError::Execution(format!("`{path}`: the table could not be read"))
        })?;
        let brought = brought.map_err(super::external)?;
        let local = brought.paths.first().map_or(path, String::as_str);
        let local = local.to_owned();
        let mut all = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(brought);
        Ok(local)
    }
}

#[async_trait]
impl UrlTableFactory for FilesAsTables {
    async fn try_new(&self, path: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let looks_like_path = path.contains(['/', '*', '.']) || std::path::Path::new(path).exists();
        if !looks_like_path {
            return Ok(None);
        }
        let local = self.brought(path)?;
        let made = match &self.make {
            None => None,
            Some(make) => make(&local).map_err(DataFusionError::Plan)?,
        };
        let read = made.map_or(local, |made| made.display().to_string());
        let files = discover(&[read], None).map_err(super::external)?;
        let Some(first) = files.first() else {
            return Ok(None);
        };
        if let Some(other) = files.iter().find(|file| file.format != first.format) {
            return Err(DataFusionError::Plan(format!(
                "`{path}` holds both Parquet and JSON Lines (`{}`, `{}`); name one kind with a glob",
                first.path.display(),
                other.path.display()
            )));
        }
        if let Some(check) = &self.check {
            for file in &files {
                check(&file.path).map_err(DataFusionError::Plan)?;
            }
        }
        for file in &files {
            if file.format == SourceFormat::JsonLines {
                crate::text::check_escapes(&file.path).map_err(|problem| {
                    DataFusionError::Plan(format!("file `{}`: {problem}", file.path.display()))
                })?;
            }
        }
        let format: Arc<dyn FileFormat> = match first.format {
            SourceFormat::Parquet => Arc::new(ParquetFormat::default()),
            SourceFormat::JsonLines => Arc::new(JsonFormat::default()),
        };
        let urls = files
            .iter()
            .map(|file| {
                let whole = file.path.canonicalize()?;
                ListingTableUrl::parse(whole.to_string_lossy())
            })
            .collect::<Result<Vec<_>>>()?;
        let state = self.context.state();
        let listing = |urls: Vec<ListingTableUrl>| {
            ListingTableConfig::new_with_multi_paths(urls).with_listing_options(
                ListingOptions::new(Arc::clone(&format)).with_file_extension(""),
            )
        };
        let config = match listing(urls.clone()).infer_schema(&state).await {
            Ok(config) => config,
            Err(error) => {
                // Which of the files is it?
                for (file, url) in files.iter().zip(urls) {
                    if let Err(error) = listing(vec![url]).infer_schema(&state).await {
                        let file = file.path.display();
                        return Err(error.context(format!("file `{file}` can't be read")));
                    }
                }
                return Err(error.context(format!("the files of `{path}` don't fit together")));
            }
        };
        Ok(Some(Arc::new(ListingTable::try_new(config)?)))
    }
}
