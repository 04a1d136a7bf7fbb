//! `coharness serve-model`: the local engine behind OpenAI's chat API.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use model::decode::EngineOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::{environment, print, say};
use crate::base_model::BaseModel;
use crate::config::Loaded;
use crate::error::RunError;
use crate::serve_model::{ModelServer, serve};

/// Serve the configuration's model over OpenAI's chat API.
#[derive(Debug, Args)]
pub(crate) struct ServeModelArgs {
    /// Configuration whose model is served.
    #[arg(long, value_name = "FILE", default_value = "quickstart.yaml")]
    config: String,
    /// Override a field of the configuration, as in --set model.path=FILE. May be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Serve trained weights too, under the directory's name or the one given: an adapter's PEFT
    /// directory, or one with a full set as model.safetensors. May be repeated.
    #[arg(long, visible_alias = "weights", value_name = "[NAME=]DIR")]
    adapter: Vec<String>,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: std::net::IpAddr,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Requests decoded together: by the base model and all adapters, and by each full set of weights.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,
    /// Longest prompt plus reply, in tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 4096, value_parser = RangedU64ValueParser::<usize>::new().range(2..))]
    context: usize,
    /// Memory for keys and values, in MiB: of the base model and all adapters, and of each full set of
    /// weights.
    #[arg(long, value_name = "MIB", default_value_t = 1536, value_parser = RangedU64ValueParser::<usize>::new().range(64..=1_048_576))]
    cache_mib: usize,
    /// Environment variable with a key that clients must send as a bearer token.
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
}

pub(crate) async fn serve_model(args: ServeModelArgs) -> Result<ExitCode, RunError> {
    let loaded = Loaded::read(&args.config, &args.set, None)?;
    let api_key = match args.api_key_env {
        None => None,
        Some(name) => Some(
            std::env::var(&name)
                .ok()
                .filter(|key| !key.is_empty())
                .ok_or(RunError::NoKey {
                    field: "--api-key-env",
                    name,
                })?,
        ),
    };
    let trained: Vec<(String, PathBuf)> = args.adapter.iter().map(|text| named(text)).collect();
    let base = BaseModel::load(&loaded, &environment::cache())?;
    let options = EngineOptions {
        max_batch: usize::from(args.parallel),
        cache_mib: args.cache_mib,
        context: args.context,
        ..EngineOptions::default()
    };
    let server = ModelServer::new(&base, &trained, options, api_key)?;
    let listen = |source| RunError::Listen {
        address: format!("{}:{}", args.host, args.port),
        source,
    };
    let listener = TcpListener::bind((args.host, args.port))
        .await
        .map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    say(&format!(
        "serving {}; stop with Ctrl-C",
        server.names().join(", ")
    ));
    print(&format!("http://{address}/v1"));
    serve(server, listener, stopped()).await.map_err(listen)?;
    Ok(ExitCode::SUCCESS)
}

/// The name and the directory of trained weights.
fn named(text: &str) -> (String, PathBuf) {
    match text.split_once('=') {
        Some((name, directory)) => (name.to_owned(), directory.into()),
        None => {
            let directory = PathBuf::from(text);
            let name = directory.file_name().unwrap_or(directory.as_os_str());
            (name.to_string_lossy().into_owned(), directory)
        }
    }
}

/// Returns at the first SIGINT or SIGTERM.
async fn stopped() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
