//! tarn-tests
