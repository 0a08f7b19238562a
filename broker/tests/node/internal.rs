//! Internal topics are not for clients.

use tarn_wire::ErrorCode;

use crate::running::Running;

#[test]
fn no_client_can_write_what_a_coordinator_keeps() {
    let node = Running::new("");
    let mut admin = node.client_called("__admin_client");
    admin.create("__mirror_state", 1, &[]);
    admin.create("__consumer_offsets", 1, &[]);
    let mut other = node.client();
    let refused = ErrorCode::INVALID_TOPIC_EXCEPTION.0;
    assert_eq!(admin.produce("__mirror_state", -1, 10).error_code, refused);
    assert_eq!(other.produce("__mirror_state", -1, 10).error_code, refused);
    assert_eq!(other.produce("__consumer_offsets", -1, 10).error_code, refused);
    assert_eq!(admin.produce("__consumer_offsets", -1, 10).error_code, 0);
}
