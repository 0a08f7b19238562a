//! tarn-quorum
