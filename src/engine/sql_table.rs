//! `FROM 'file.parquet'`: files, folders and globs as tables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

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
}

#[async_trait]
impl UrlTableFactory for FilesAsTables {
    async fn try_new(&self, path: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let looks_like_path = path.contains(['/', '*', '.']) || std::path::Path::new(path).exists();
        if !looks_like_path {
            return Ok(None);
        }
        let made = match &self.make {
            None => None,
            Some(make) => make(path).map_err(DataFusionError::Plan)?,
        };
        let read = made.map_or_else(|| path.to_owned(), |made| made.display().to_string());
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
