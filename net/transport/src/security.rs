//! How a connection is protected. Today in one way only: not at all.
//!
//! The type is the seam for TLS and SASL. What is not served is refused by name where the configuration
//! is read, never silently treated as plaintext.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A security protocol by Kafka's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Neither encrypted nor authenticated.
    #[default]
    Plaintext,
}

/// A security protocol that is not served.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SecurityError {
    /// One that Kafka knows.
    #[error("security protocol {0} is not supported yet: only PLAINTEXT is")]
    NotServed(String),
    /// Not the name of any.
    #[error("{0:?} is no security protocol: PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL are")]
    Unknown(String),
}

impl FromStr for SecurityProtocol {
    type Err = SecurityError;

    fn from_str(name: &str) -> Result<SecurityProtocol, SecurityError> {
        match name.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Ok(SecurityProtocol::Plaintext),
            known @ ("SSL" | "SASL_PLAINTEXT" | "SASL_SSL") => {
                Err(SecurityError::NotServed(known.to_owned()))
            }
            _ => Err(SecurityError::Unknown(name.to_owned())),
        }
    }
}

impl fmt::Display for SecurityProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecurityProtocol::Plaintext => f.write_str("PLAINTEXT"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_served_is_refused_by_name() {
        assert_eq!("plaintext".parse(), Ok(SecurityProtocol::Plaintext));
        let refused = "SASL_SSL".parse::<SecurityProtocol>();
        assert_eq!(refused, Err(SecurityError::NotServed("SASL_SSL".to_owned())));
        assert_eq!("TLS".parse::<SecurityProtocol>(), Err(SecurityError::Unknown("TLS".to_owned())));
    }
}
