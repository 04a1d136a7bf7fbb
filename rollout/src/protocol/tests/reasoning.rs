//! Reasoning that stands in a reply.

use super::*;

#[test]
fn reasoning_inside_reasoning_ends_with_the_outer_one() {
    let draft = "```python\ndraft\n```";
    let end = "\n```python\n2\n```";
    for reasoning in [
        format!("<think>a<think>b</think>\n{draft}\n</think>"),
        format!("<think>a<think>b<think>c</think></think>{draft}</think>"),
        // Opened twice and closed once.
        format!("<think>\n<think>{draft}</think>"),
        "<think>I print '<think>'.</think>".to_owned(),
    ] {
        let reply = format!("{reasoning}{end}");
        assert_eq!(program(&reply, Fenced, STRICT), is("2", ""), "{reply}");
    }
    // Only spoken of: what would close it stands in a string of the program.
    let code = "print('</think>')";
    let reply = format!("<think>I print <think> in it.</think>\n```python\n{code}\n```");
    assert_eq!(program(&reply, Fenced, STRICT), is(code, ""));
}

#[test]
fn a_call_drafted_while_reasoning_is_none() {
    let call = |code: &str| {
        render_call(
            Xml,
            "python",
            &tools(),
            &Map::from_iter([("code".to_owned(), code.into())]),
        )
    };
    let reply = format!(
        "<think>One option is {} but</think>\n{}",
        call("draft"),
        call("final")
    );
    assert_eq!(program(&reply, Xml, STRICT), is("final", ""));
    let reply = "```python\n1\n``` no</think>\n```python\n2\n```";
    assert_eq!(program(reply, Fenced, STRICT), is("2", ""));
    assert_eq!(
        read("<think>```python\n1\n```", Fenced, STRICT),
        Parsed::default()
    );
    assert_eq!(without_reasoning("<think>a</think>b<think>c"), "b");
    assert!(is_inside_reasoning("<think>a") && !is_inside_reasoning("<think>a</think>"));
}

#[test]
fn tags_in_strings_of_a_program_are_no_reasoning() {
    let code = "s = '<think>a</think>'\nprint(s, \"</think>\")";
    let arguments = Map::from_iter([("code".to_owned(), Value::from(code))]);
    for format in [Json, Fenced, Xml] {
        let call = render_call(format, "python", &tools(), &arguments);
        assert_eq!(program(&call, format, STRICT), is(code, ""), "{call}");
        let reply = format!("<think>I don't \"know</think>{call}");
        assert_eq!(program(&reply, format, STRICT), is(code, ""), "{reply}");
        assert_eq!(reasoning_of(&reply), "I don't \"know");
    }
}

#[test]
fn reasoning_is_kept_apart_however_it_is_marked() {
    let block = "```python\n1\n```";
    let end = "\n\n```python\n2\n```";
    for (reasoning, reply) in [
        (block, format!("<think>{block}</think>{end}")),
        (block, format!("<thinking>\n{block}\n</thinking>{end}")),
        (block, format!("[THINK]{block}[/THINK]{end}")),
        (block, format!("{block}\n</think>{end}")),
        ("```python\n1", format!("```python\n1\n</think>{end}")),
        (
            "a\n\nb",
            format!("<think>a</think>Hm.<think>b</think>{end}"),
        ),
    ] {
        assert_eq!(reasoning_of(&reply), reasoning, "{reply}");
        assert_eq!(program(&reply, Fenced, STRICT), is("2", ""), "{reply}");
    }
    let boxed = r"<think>\boxed{1}</think>\boxed{2}";
    assert_eq!(without_reasoning(boxed), r"\boxed{2}");
    assert_eq!(reasoning_of("none"), "");
}
