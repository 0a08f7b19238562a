//! The connections that questions to a source go over, apart from those that fetch. One set for each
//! mirror, on the manager's core.
//!
//! Invariant: a connection is kept and given out only once the broker has said that it belongs to the
//! cluster that the mirror was made for. An address that leads elsewhere is looked up anew each time.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tarn_image::config::mirror::MirrorConfig;
use tarn_runtime::Queue;
use tarn_transport::{Client, ClientError, ClientOptions, Endpoint};

use super::metadata::{self, Topics};
use super::{SourceError, is_pinned};
use crate::limits;

/// Connections to brokers of one source.
#[derive(Debug)]
pub struct Connections {
    options: ClientOptions,
    /// The cluster that is meant; `None` before it is known.
    pinned: Option<String>,
    bootstrap: Vec<Endpoint>,
    open: RefCell<BTreeMap<Endpoint, Client>>,
}

impl Connections {
    /// None yet.
    pub fn new(config: &MirrorConfig, client_id: String) -> Connections {
        let options = ClientOptions {
            client_id,
            connect_timeout: config.connect_timeout,
            request_timeout: config.request_timeout,
            max_response_bytes: limits::ANSWER_BYTES_MAX,
            queue: Queue::Mirror,
            ..ClientOptions::default()
        };
        let endpoint = |(host, port): &(String, u16)| Endpoint { host: host.clone(), port: *port };
        Connections {
            options,
            pinned: config.source_cluster_id.clone(),
            bootstrap: config.bootstrap.iter().map(endpoint).collect(),
            open: RefCell::default(),
        }
    }

    /// The connection to one broker, made where there is none.
    ///
    /// # Errors
    /// Why it cannot be made, or where it leads instead.
    pub async fn to(&self, endpoint: &Endpoint) -> Result<Client, SourceError> {
        let known = self.open.borrow().get(endpoint).filter(|client| !client.is_closed()).cloned();
        if let Some(client) = known {
            return Ok(client);
        }
        let client = connect(endpoint, &self.options, self.pinned.as_deref()).await?;
        self.open.borrow_mut().insert(endpoint.clone(), client.clone());
        Ok(client)
    }

    /// A connection to whichever broker of the cluster answers: one that is open, one of `known`, or one of
    /// the bootstrap addresses.
    ///
    /// # Errors
    /// What was wrong with the first that answered, or else what each of them said.
    pub async fn any(&self, known: &[Endpoint]) -> Result<Client, SourceError> {
        let open = self.open.borrow().values().find(|client| !client.is_closed()).cloned();
        if let Some(client) = open {
            return Ok(client);
        }
        self.open.borrow_mut().clear();
        let mut tried: Vec<&Endpoint> = Vec::new();
        let (mut said, mut answered) = (Vec::new(), None);
        for endpoint in known.iter().chain(&self.bootstrap) {
            if tried.contains(&endpoint) {
                continue;
            }
            tried.push(endpoint);
            match self.to(endpoint).await {
                Ok(client) => return Ok(client),
                Err(SourceError::Call(error)) => said.push(said_by(endpoint, &error)),
                Err(error) => answered = answered.or(Some(error)),
            }
        }
        Err(answered.unwrap_or_else(|| SourceError::Unreachable(said.join("; "))))
    }

    /// Closes the connections to brokers that are not among `endpoints`.
    pub fn keep(&self, endpoints: &[Endpoint]) {
        self.open.borrow_mut().retain(|endpoint, client| {
            !client.is_closed() && (endpoints.contains(endpoint) || self.bootstrap.contains(endpoint))
        });
    }
}

/// A new connection, to a broker of the cluster `pinned`, where one is.
///
/// # Errors
/// Why it cannot be made, or where it leads instead.
pub async fn connect(
    endpoint: &Endpoint,
    options: &ClientOptions,
    pinned: Option<&str>,
) -> Result<Client, SourceError> {
    let client = Client::connect(endpoint, options).await?;
    if let Some(pinned) = pinned {
        let found = metadata::ask(&client, Topics::None).await?.cluster_id;
        is_pinned(pinned, found.as_deref())?;
    }
    Ok(client)
}

/// What is wrong, with the address, which not every error names.
fn said_by(endpoint: &Endpoint, error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { .. } | ClientError::NotKafka { .. } => error.to_string(),
        _ => format!("{endpoint}: {error}"),
    }
}
