//! What the build script refuses, and that it says where.

#[path = "../build/check.rs"]
mod check;
#[path = "../src/mirror_numbers.rs"]
#[allow(dead_code, unreachable_pub, reason = "a file of the crate, of which only the API keys matter here")]
mod mirror_numbers;
#[path = "../build/parse.rs"]
mod parse;
#[path = "../build/schema.rs"]
#[allow(dead_code, reason = "a part of the build script, of which some is for writing Rust")]
mod schema;

/// The refusal of a message with these fields.
fn refusal(fields: &str) -> String {
    let text = format!("@ data Sample key=- v=0-3 flex=2+\n{fields}");
    read(&text).expect_err("the schema breaks a rule")
}

fn read(text: &str) -> Result<Vec<schema::Message>, String> {
    let messages = parse::file("sample.txt", text)?;
    check::all(&messages)?;
    Ok(messages)
}

#[test]
fn a_nested_struct_gets_its_fields_and_what_follows_goes_on_outside() {
    let text = "# a comment\n@ data Sample key=- v=0-3 flex=2+\n  Items []Item 0+\n    Id int32 0+\n  Last int8 1+ def=-1\n";
    let messages = read(text).unwrap();
    let names = |fields: &[schema::Field]| fields.iter().map(|each| each.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&messages[0].root.fields), ["Items", "Last"]);
    assert_eq!(names(&messages[0].find("Item").unwrap().fields), ["Id"]);
}

#[test]
fn an_unknown_type_is_refused_where_it_stands() {
    assert_eq!(refusal("  Id int32 0+\n  Size int24 0+\n"), "schemas/sample.txt:3: unknown type int24");
    assert_eq!(refusal("  Items []Item 0+\n"), "schemas/sample.txt:2: Sample.Items: unknown type Item");
}

#[test]
fn tags_have_no_gap_and_no_double() {
    let gap = refusal("  A int32 2+ tag=0@2+\n  B int32 2+ tag=2@2+\n");
    assert_eq!(gap, "schemas/sample.txt:3: Sample: tag 2 where 1 is the next: tags are 0, 1, 2, …");
    let double = refusal("  A int32 2+ tag=0@2+\n  B int32 2+ tag=0@2+\n");
    assert!(double.ends_with("tag 0 where 1 is the next: tags are 0, 1, 2, …"), "{double}");
}

#[test]
fn a_tag_needs_a_flexible_version() {
    let refused = refusal("  A int32 1+ tag=0@1+\n");
    assert_eq!(refused, "schemas/sample.txt:2: Sample.A: tagged in a version that is not flexible");
}

#[test]
fn a_struct_that_contains_itself_is_refused() {
    let direct = refusal("  A Node 0+\n    Id int32 0+\n    Next []Node 0+\n");
    assert!(direct.ends_with("Node contains itself"), "{direct}");
    let round = refusal("  A Left 0+\n  struct Left 0+\n    B Right 0+\n  struct Right 0+\n    C Left 0+\n");
    assert!(round.ends_with("contains itself"), "{round}");
}

#[test]
fn an_array_of_nothing_is_refused() {
    let refused = refusal("  Items []Item 0+\n    Id int32 2+\n");
    assert!(refused.ends_with("an element may take no bytes, so that its count has no bound"), "{refused}");
}

#[test]
fn attributes_that_mean_nothing_are_refused() {
    assert!(refusal("  Id int32 0+ nul=0+\n").ends_with("unknown attribute nul=0+"));
    assert!(refusal("  Id int32 0+ null=0+\n").ends_with("this type cannot be null"));
    assert!(refusal("  Id int32\n").ends_with("Id has no versions"));
    assert!(refusal("   Id int32 0+\n").ends_with("indented by 3 spaces"));
    assert!(
        refusal("  Id int32 0+\n      Sub int32 0+\n").ends_with("indented below a line that has no fields")
    );
}

#[test]
fn a_request_without_a_response_is_refused() {
    let refused = read("@ request AloneRequest key=1 v=0 flex=0+\n  Id int32 0+\n").unwrap_err();
    assert_eq!(refused, "schemas/sample.txt:1: AloneRequest: its other half is missing or has another key");
}

#[test]
fn names_become_rusts() {
    let cases = [
        ("ErrorCode", "error_code"),
        ("KRaftVersionRecord", "kraft_version_record"),
        ("Enable2Pc", "enable_2_pc"),
        ("groupInstanceId", "group_instance_id"),
        ("AlterReplicaLogDirs", "alter_replica_log_dirs"),
        ("NoOpRecord", "no_op_record"),
    ];
    for (kafkas, rusts) in cases {
        assert_eq!(schema::snake(kafkas), rusts);
    }
}
