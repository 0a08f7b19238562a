//! tarn-transport
