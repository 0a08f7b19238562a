//! tarn-broker
