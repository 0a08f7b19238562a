//! Authentication, TLS, authorization and delegation tokens.

use super::{ConfigKey, keys};

pub(super) const KEYS: &[ConfigKey] = keys! {
    /// What decides about access: Kafka's StandardAuthorizer by name, or nothing.
    "authorizer.class.name": String = "", Any, ReadOnly;
    /// Wait before a connection is closed after failed authentication.
    "connection.failed.authentication.delay.ms": Int = "100", AtLeast(0), ReadOnly;
    /// Longest session before SASL clients must authenticate again; 0 for no limit.
    "connections.max.reauth.ms": Long = "0", Any, ReadOnly;
    /// How often expired delegation tokens are removed.
    "delegation.token.expiry.check.interval.ms": Long = "3600000", AtLeast(1), ReadOnly;
    /// Life of a delegation token before it must be renewed.
    "delegation.token.expiry.time.ms": Long = "86400000", AtLeast(1), ReadOnly;
    /// Longest life of a delegation token, renewals included.
    "delegation.token.max.lifetime.ms": Long = "604800000", AtLeast(1), ReadOnly;
    /// Secret that signs delegation tokens; without one they are off.
    "delegation.token.secret.key": Password = null, Any, ReadOnly;
    /// The class that names the principal of a connection.
    "principal.builder.class": Class =
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", Any, PerBroker;
    /// The callback class of SASL clients.
    "sasl.client.callback.handler.class": Class = null, Any, ReadOnly;
    /// SASL mechanisms that clients may use.
    "sasl.enabled.mechanisms": List = "GSSAPI", Any, PerBroker;
    /// Login module and options, in JAAS form.
    "sasl.jaas.config": Password = null, Any, PerBroker;
    /// The path of kinit.
    "sasl.kerberos.kinit.cmd": String = "/usr/bin/kinit", Any, PerBroker;
    /// Least time between two Kerberos logins.
    "sasl.kerberos.min.time.before.relogin": Long = "60000", Any, PerBroker;
    /// Rules from Kerberos principals to short names.
    "sasl.kerberos.principal.to.local.rules": List = "DEFAULT", Any, PerBroker;
    /// The Kerberos principal that brokers run as.
    "sasl.kerberos.service.name": String = null, Any, PerBroker;
    /// Random part of the renewal time of a ticket.
    "sasl.kerberos.ticket.renew.jitter": Double = "0.05", Any, PerBroker;
    /// Share of a ticket's life after which it is renewed.
    "sasl.kerberos.ticket.renew.window.factor": Double = "0.8", Any, PerBroker;
    /// The callback class of SASL logins.
    "sasl.login.callback.handler.class": Class = null, Any, ReadOnly;
    /// The class of SASL logins.
    "sasl.login.class": Class = null, Any, ReadOnly;
    /// Longest connection to an OAuth provider.
    "sasl.login.connect.timeout.ms": Int = null, Any, ReadOnly;
    /// Longest read from an OAuth provider.
    "sasl.login.read.timeout.ms": Int = null, Any, ReadOnly;
    /// Time kept before a credential expires when it is refreshed.
    "sasl.login.refresh.buffer.seconds": Short = "300", Any, PerBroker;
    /// Least time between two refreshes of a credential.
    "sasl.login.refresh.min.period.seconds": Short = "60", Any, PerBroker;
    /// Share of a credential's life after which it is refreshed.
    "sasl.login.refresh.window.factor": Double = "0.8", Any, PerBroker;
    /// Random part of that time.
    "sasl.login.refresh.window.jitter": Double = "0.05", Any, PerBroker;
    /// Longest wait before a login is tried again.
    "sasl.login.retry.backoff.max.ms": Long = "10000", Any, ReadOnly;
    /// First wait before a login is tried again.
    "sasl.login.retry.backoff.ms": Long = "100", Any, ReadOnly;
    /// SASL mechanism towards controllers.
    "sasl.mechanism.controller.protocol": String = "GSSAPI", Any, ReadOnly;
    /// SASL mechanism among brokers.
    "sasl.mechanism.inter.broker.protocol": String = "GSSAPI", Any, PerBroker;
    /// Whether a token without a checked audience is accepted.
    "sasl.oauthbearer.allow.unverified.audience": Boolean = "false", Any, ReadOnly;
    /// Whether a token without a checked issuer is accepted.
    "sasl.oauthbearer.allow.unverified.issuer": Boolean = "false", Any, ReadOnly;
    /// Algorithm that signs an assertion.
    "sasl.oauthbearer.assertion.algorithm": String = "RS256", OneOfAnyCase(&["ES256", "RS256"]), ReadOnly;
    /// Audience of an assertion.
    "sasl.oauthbearer.assertion.claim.aud": String = null, Any, ReadOnly;
    /// Life of an assertion.
    "sasl.oauthbearer.assertion.claim.exp.seconds": Int = "300", Between(0, 86400), ReadOnly;
    /// Issuer of an assertion.
    "sasl.oauthbearer.assertion.claim.iss": String = null, Any, ReadOnly;
    /// Whether an assertion carries an id of its own.
    "sasl.oauthbearer.assertion.claim.jti.include": Boolean = "false", Any, ReadOnly;
    /// How far back an assertion is valid.
    "sasl.oauthbearer.assertion.claim.nbf.seconds": Int = "60", Between(0, 3600), ReadOnly;
    /// Subject of an assertion.
    "sasl.oauthbearer.assertion.claim.sub": String = null, Any, ReadOnly;
    /// A file with a finished assertion.
    "sasl.oauthbearer.assertion.file": String = null, Any, ReadOnly;
    /// The key that signs assertions.
    "sasl.oauthbearer.assertion.private.key.file": String = null, Any, ReadOnly;
    /// The passphrase of that key.
    "sasl.oauthbearer.assertion.private.key.passphrase": Password = null, Any, ReadOnly;
    /// A template for assertions.
    "sasl.oauthbearer.assertion.template.file": String = null, Any, ReadOnly;
    /// Client id towards the OAuth provider.
    "sasl.oauthbearer.client.credentials.client.id": String = null, Any, ReadOnly;
    /// Client secret towards the OAuth provider.
    "sasl.oauthbearer.client.credentials.client.secret": Password = null, Any, ReadOnly;
    /// Difference of clocks that is tolerated in tokens.
    "sasl.oauthbearer.clock.skew.seconds": Int = "30", Any, ReadOnly;
    /// Audiences that a token must name one of.
    "sasl.oauthbearer.expected.audience": List = "", Any, ReadOnly;
    /// The issuer that a token must name.
    "sasl.oauthbearer.expected.issuer": String = null, Any, ReadOnly;
    /// How often the provider's keys are read again.
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": Long = "3600000", Any, ReadOnly;
    /// Longest wait before the keys are read again after a failure.
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": Long = "10000", Any, ReadOnly;
    /// First wait before the keys are read again after a failure.
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": Long = "100", Any, ReadOnly;
    /// Where the provider's keys are.
    "sasl.oauthbearer.jwks.endpoint.url": String = null, Any, ReadOnly;
    /// The class that gets tokens.
    "sasl.oauthbearer.jwt.retriever.class": Class =
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", Any, ReadOnly;
    /// The class that checks tokens.
    "sasl.oauthbearer.jwt.validator.class": Class =
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", Any, ReadOnly;
    /// The scope asked for.
    "sasl.oauthbearer.scope": String = null, Any, ReadOnly;
    /// The claim that holds the scope.
    "sasl.oauthbearer.scope.claim.name": String = "scope", Any, ReadOnly;
    /// The claim that holds the subject.
    "sasl.oauthbearer.sub.claim.name": String = "sub", Any, ReadOnly;
    /// Where tokens are given out.
    "sasl.oauthbearer.token.endpoint.url": String = null, Any, ReadOnly;
    /// The callback class of SASL servers.
    "sasl.server.callback.handler.class": Class = null, Any, ReadOnly;
    /// Largest message during SASL authentication.
    "sasl.server.max.receive.size": Int = "524288", Any, ReadOnly;
    /// The security protocol among brokers, if no listener is named for it.
    "security.inter.broker.protocol": String =
        "PLAINTEXT", OneOf(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]), ReadOnly;
    /// Java security providers; not available here.
    "security.providers": String = null, Any, ReadOnly;
    /// Whether a reloaded certificate may have another subject.
    "ssl.allow.dn.changes": Boolean = "false", Any, ReadOnly;
    /// Whether a reloaded certificate may have other names.
    "ssl.allow.san.changes": Boolean = "false", Any, ReadOnly;
    /// Cipher suites that may be used.
    "ssl.cipher.suites": List = "", Any, PerBroker;
    /// Whether clients must, may or need not show a certificate.
    "ssl.client.auth": String = "none", OneOf(&["required", "requested", "none"]), PerBroker;
    /// TLS versions that may be used.
    "ssl.enabled.protocols": List = "TLSv1.2,TLSv1.3", Any, PerBroker;
    /// How a server's name is checked.
    "ssl.endpoint.identification.algorithm": String = "https", Any, PerBroker;
    /// The class that makes TLS engines.
    "ssl.engine.factory.class": Class = null, Any, PerBroker;
    /// Password of the private key.
    "ssl.key.password": Password = null, Any, PerBroker;
    /// Algorithm of the key manager.
    "ssl.keymanager.algorithm": String = "SunX509", Any, PerBroker;
    /// Certificate chain, in PEM.
    "ssl.keystore.certificate.chain": Password = null, Any, PerBroker;
    /// Private key, in PEM.
    "ssl.keystore.key": Password = null, Any, PerBroker;
    /// File of the key store.
    "ssl.keystore.location": String = null, Any, PerBroker;
    /// Password of the key store.
    "ssl.keystore.password": Password = null, Any, PerBroker;
    /// Format of the key store.
    "ssl.keystore.type": String = "JKS", Any, PerBroker;
    /// Rules from certificate subjects to principals.
    "ssl.principal.mapping.rules": String = "DEFAULT", Any, ReadOnly;
    /// TLS version preferred.
    "ssl.protocol": String = "TLSv1.3", Any, PerBroker;
    /// Java provider of TLS.
    "ssl.provider": String = null, Any, PerBroker;
    /// Random number generator of TLS.
    "ssl.secure.random.implementation": String = null, Any, PerBroker;
    /// Algorithm of the trust manager.
    "ssl.trustmanager.algorithm": String = "PKIX", Any, PerBroker;
    /// Trusted certificates, in PEM.
    "ssl.truststore.certificates": Password = null, Any, PerBroker;
    /// File of the trust store.
    "ssl.truststore.location": String = null, Any, PerBroker;
    /// Password of the trust store.
    "ssl.truststore.password": Password = null, Any, PerBroker;
    /// Format of the trust store.
    "ssl.truststore.type": String = "JKS", Any, PerBroker;
};
