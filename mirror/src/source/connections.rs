//! The connections that questions to a source go over, apart from those that fetch. One set for each
//! mirror, on the manager's core.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tarn_image::config::mirror::MirrorConfig;
use tarn_runtime::Queue;
use tarn_transport::{Client, ClientError, ClientOptions, Endpoint};

use super::SourceError;
use crate::limits;

/// Connections to brokers of one source.
#[derive(Debug)]
pub struct Connections {
    options: ClientOptions,
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
            bootstrap: config.bootstrap.iter().map(endpoint).collect(),
            open: RefCell::default(),
        }
    }

    /// The connection to one broker, made where there is none.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub async fn to(&self, endpoint: &Endpoint) -> Result<Client, ClientError> {
        let known = self.open.borrow().get(endpoint).filter(|client| !client.is_closed()).cloned();
        if let Some(client) = known {
            return Ok(client);
        }
        let client = Client::connect(endpoint, &self.options).await?;
        self.open.borrow_mut().insert(endpoint.clone(), client.clone());
        Ok(client)
    }

    /// A connection to whichever broker answers: one that is open, one of `known`, or one of the
    /// bootstrap addresses.
    ///
    /// # Errors
    /// What each of them said.
    pub async fn any(&self, known: &[Endpoint]) -> Result<Client, SourceError> {
        let open = self.open.borrow().values().find(|client| !client.is_closed()).cloned();
        if let Some(client) = open {
            return Ok(client);
        }
        self.open.borrow_mut().clear();
        let mut tried: Vec<&Endpoint> = Vec::new();
        let mut said = Vec::new();
        for endpoint in known.iter().chain(&self.bootstrap) {
            if tried.contains(&endpoint) {
                continue;
            }
            tried.push(endpoint);
            match self.to(endpoint).await {
                Ok(client) => return Ok(client),
                Err(error) => said.push(said_by(endpoint, &error)),
            }
        }
        Err(SourceError::Unreachable(said.join("; ")))
    }

    /// Closes the connections to brokers that are not among `endpoints`.
    pub fn keep(&self, endpoints: &[Endpoint]) {
        self.open.borrow_mut().retain(|endpoint, client| {
            !client.is_closed() && (endpoints.contains(endpoint) || self.bootstrap.contains(endpoint))
        });
    }
}

/// What is wrong, with the address, which not every error names.
fn said_by(endpoint: &Endpoint, error: &ClientError) -> String {
    match error {
        ClientError::Unreachable { .. } | ClientError::NotKafka { .. } => error.to_string(),
        _ => format!("{endpoint}: {error}"),
    }
}
