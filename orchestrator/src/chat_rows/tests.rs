use super::*;

fn one(row: &Value, form: Form) -> Result<Value, String> {
    read(&row.to_string(), form)
        .map(|rows| rows[0]["messages"].clone())
        .map_err(|error| error.to_string())
}

/// The rest of a row that begins with a user's message.
fn answered(message: &Value) -> Result<Value, String> {
    let row = json!({"messages": [{"role": "user", "content": "q"}, message]});
    one(&row, Form::Auto).map(|messages| messages[1].clone())
}

#[test]
fn all_forms_become_messages() {
    let plain = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]);
    for row in [
        json!({"messages": plain}),
        json!({"prompt": "q", "completion": "a"}),
        json!({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "a"}]}),
        json!({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}),
        json!({"instruction": "q", "input": "", "output": "a"}),
    ] {
        assert_eq!(one(&row, Form::Auto).as_ref(), Ok(&plain), "{row}");
    }
    let alpaca = json!({"system": "s", "instruction": "q", "input": "i", "output": "a"});
    let messages = one(&alpaca, Form::Alpaca).expect("row");
    assert_eq!(
        (&messages[0]["content"], &messages[1]["content"]),
        (&json!("s"), &json!("q\n\ni"))
    );
    let earlier = json!({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "old"},
        {"role": "user", "content": "r"}], "completion": "a"});
    let messages = one(&earlier, Form::Auto).expect("row");
    assert_eq!(
        (&messages[1]["train"], &messages[3].get("train")),
        (&json!(false), &None)
    );
}

#[test]
fn earlier_turns_of_alpaca_come_first() {
    let row = json!({"instruction": "q", "output": "a", "system": "s", "history": [["q1", "a1"], ["q2", "a2"]]});
    let messages = one(&row, Form::Auto).expect("row");
    let said: Vec<&str> = messages
        .as_array()
        .expect("list")
        .iter()
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert_eq!(said, ["s", "q1", "a1", "q2", "a2", "q", "a"]);
    let wrong = json!({"instruction": "q", "output": "a", "history": [["q1"]]});
    let error = one(&wrong, Form::Auto).expect_err("half a turn");
    assert_eq!(error, "line 1: history is not a list of pairs of texts");
}

#[test]
fn calls_and_results_of_sharegpt_are_calls_and_results() {
    let row = json!({
        "system": "s",
        "tools": "[{\"name\": \"add\", \"parameters\": {}}]",
        "conversations": [
            {"from": "human", "value": "1+1"},
            {"from": "function_call", "value": "{\"name\": \"add\", \"arguments\": {\"a\": 1}}"},
            {"from": "observation", "value": "2"},
            {"from": "gpt", "value": "two", "weight": 0},
        ],
    });
    let rows = read(&row.to_string(), Form::Auto).expect("a row");
    let call = json!({"type": "function", "function": {"name": "add", "arguments": {"a": 1}}});
    assert_eq!(
        rows[0]["messages"],
        json!([
            {"role": "system", "content": "s"},
            {"role": "user", "content": "1+1"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "2"},
            {"role": "assistant", "content": "two", "train": false},
        ])
    );
    let function = json!({"name": "add", "parameters": {}});
    assert_eq!(
        rows[0]["tools"],
        json!([{"type": "function", "function": function}])
    );
    let broken = json!({"conversations": [{"from": "function_call", "value": "add(1)"}]});
    let error = one(&broken, Form::Auto).expect_err("no call");
    assert!(
        error.starts_with("line 1: a function_call is no JSON"),
        "{error}"
    );
    let twice = json!({"system": "s", "conversations": [{"from": "system", "value": "t"}]});
    let error = one(&twice, Form::Auto).expect_err("two system prompts");
    assert!(error.contains("system is another one"), "{error}");
}

#[test]
fn ids_tools_and_calls_are_kept_and_faults_name_their_line() {
    let text = "\n{\"id\": \"x\", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}], \"source\": \"web\", \
        \"messages\": [{\"role\": \"assistant\", \"content\": null, \
        \"tool_calls\": [{\"id\": \"c9\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}]}, \
        {\"role\": \"tool\", \"content\": \"1\", \"tool_call_id\": \"c9\"}]}\n{\"text\": \"no\"}";
    let error = read(text, Form::Auto).expect_err("line 3");
    assert_eq!(
        (error.line, error.reason.starts_with("none of messages")),
        (3, true)
    );
    let rows = read(text.lines().nth(1).expect("line"), Form::Auto).expect("row");
    let [call, result] = [0_usize, 1].map(|message| &rows[0]["messages"][message]);
    assert_eq!(
        (&rows[0]["id"], &rows[0]["source"], &call["content"]),
        (&json!("x"), &json!("web"), &json!(""))
    );
    // A template's `tojson` would quote a text once more.
    assert_eq!(
        call["tool_calls"][0]["function"]["arguments"],
        json!({"a": 1})
    );
    assert_eq!(
        (&call["tool_calls"][0]["id"], &result["tool_call_id"]),
        (&json!("c9"), &json!("c9"))
    );
    assert_eq!(rows[0]["tools"][0]["function"]["name"], "f");
    // What was read is read again as the same.
    let again = read(&rows[0].to_string(), Form::Auto).expect("row");
    assert_eq!(again, rows);
    for wrong in [
        json!({"messages": []}),
        json!({"messages": [{"role": "robot", "content": "x"}]}),
        json!({"messages": [{"role": "user"}]}),
        json!({"conversations": [{"from": "alien", "value": "x"}]}),
        json!({"prompt": 5, "completion": "x"}),
        json!({"instruction": 5, "output": "x"}),
        json!([]),
    ] {
        assert!(one(&wrong, Form::Auto).is_err(), "{wrong}");
    }
    assert!(one(&json!({"instruction": "x"}), Form::Alpaca).is_err());
}

#[test]
fn a_weight_of_openais_says_whether_a_message_is_learnt_from() {
    let weighed =
        |weight: Value| answered(&json!({"role": "assistant", "content": "a", "weight": weight}));
    let plain = json!({"role": "assistant", "content": "a"});
    let mut silent = plain.clone();
    silent["train"] = json!(false);
    assert_eq!(weighed(json!(0)), Ok(silent.clone()));
    assert_eq!(weighed(json!(0.0)), Ok(silent));
    assert_eq!(weighed(json!(1)), Ok(plain));
    let error = weighed(json!(0.5)).expect_err("refused");
    assert!(error.contains("weight is 0.5"), "{error}");
    for wrong in [
        json!({"role": "assistant", "content": "a", "weight": 0, "train": true}),
        json!({"role": "assistant", "content": "a", "train": "no"}),
        json!({"role": "user", "content": "a", "train": true}),
        json!({"role": "tool", "content": "a", "weight": 1}),
    ] {
        assert!(answered(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_prompt_that_is_to_be_learnt_from_is_no_prompt() {
    let row = |name: &str, value: Value| {
        let mut reply = json!({"role": "assistant", "content": "old"});
        reply[name] = value;
        let prompt =
            json!([{"role": "user", "content": "q"}, reply, {"role": "user", "content": "r"}]);
        one(&json!({"prompt": prompt, "completion": "a"}), Form::Auto)
    };
    for (name, value) in [("train", json!(true)), ("weight", json!(1))] {
        let error = row(name, value).expect_err(name);
        assert!(error.contains("only the completion can be"), "{error}");
    }
    for (name, value) in [
        ("train", json!(false)),
        ("weight", json!(0)),
        ("train", Value::Null),
    ] {
        let messages = row(name, value).expect(name);
        assert_eq!(messages[1]["train"], json!(false));
    }
}

#[test]
fn a_row_of_two_forms_is_refused_and_a_note_of_one_name_is_kept() {
    let messages = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]);
    let turns = json!([{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]);
    for (first, second) in [("prompt", "completion"), ("instruction", "output")] {
        let mut rows = vec![
            json!({"messages": messages}),
            json!({"conversations": turns}),
        ];
        if first == "instruction" {
            rows.push(json!({"prompt": "q", "completion": "a"}));
        }
        for mut row in rows {
            row[first] = json!("q");
            assert!(one(&row, Form::Auto).is_ok(), "{row}");
            row[second] = json!("b");
            let error = one(&row, Form::Auto).expect_err("two conversations");
            assert!(
                error.starts_with(&format!("line 1: {first} and {second} are")),
                "{error}"
            );
            // Tables have the columns in every row.
            row[first] = json!("");
            assert!(one(&row, Form::Auto).is_ok(), "{row}");
        }
    }
}

#[test]
fn what_would_change_a_rows_meaning_is_refused_by_name() {
    let row = |name: &str, value: Value| {
        let mut row = json!({"messages": [{"role": "assistant", "content": "a"}]});
        row[name] = value;
        one(&row, Form::Auto)
    };
    for name in ["images", "rejected", "weight", "conversations", "history"] {
        let error = row(name, json!(["x"])).expect_err(name);
        assert!(error.starts_with(&format!("line 1: {name} ")), "{error}");
        // Tables have the column in every row.
        assert!(row(name, json!([])).is_ok() && row(name, Value::Null).is_ok());
    }
    for (tools, reason) in [
        (json!("[{"), "tools is a text that is no JSON"),
        (json!({"name": "f"}), "tools is not a list"),
        (json!([{"a": 1}]), "no function.name"),
    ] {
        let error = row("tools", tools).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
    for (name, value) in [
        ("loss", json!(false)),
        ("image", json!("a.png")),
        ("function_call", json!({"name": "f"})),
        ("refusal", json!("I can't.")),
        (
            "tool_calls",
            json!([{"function": {"name": "f", "arguments": "no"}}]),
        ),
        ("tool_calls", json!([{"function": {}}])),
        (
            "tool_calls",
            json!([{"type": "custom", "function": {"name": "f"}}]),
        ),
    ] {
        let mut message = json!({"role": "assistant", "content": "a"});
        message[name] = value;
        assert!(answered(&message).is_err(), "{message}");
        let mut message = json!({"role": "assistant", "content": "a"});
        message[name] = Value::Null;
        assert!(answered(&message).is_ok(), "{message}");
    }
}
