//! Repairs of dimension T.

use harness::{
    Backend, CallFormat, FieldPath, Harness, PatchOp, Tool, ToolLimits, ToolName, ToolState,
};
use serde_json::{Value, json};

use super::{Repair, if_any, path, value};
use crate::catalogue::{catalogue, program_tool, speaks_of_programs, with_tool_name};

const TIMEOUT_MS: u64 = 20_000;
const MEMORY_MIB: u64 = 2048;
const OUTPUT_CHARS: usize = 16_000;

pub(crate) const DESCRIPTION_WHEN: Repair = Repair {
    name: "description_when",
    summary: "say in the tool's description when to use it",
    ops: |harness| describe_tool(harness, &catalogue().texts.tools.description_when),
};

pub(crate) const DESCRIPTION_NAME: Repair = Repair {
    name: "description_name",
    summary: "say the tool's name in its description",
    ops: |harness| describe_tool(harness, &catalogue().texts.tools.description_name),
};

pub(crate) const PARAMETER_PRINT: Repair = Repair {
    name: "parameter_print",
    summary: "say in the parameter's description that the program must print",
    ops: |harness| describe_parameter(harness, &catalogue().texts.tools.parameter_print),
};

pub(crate) const PARAMETER_EXAMPLE: Repair = Repair {
    name: "parameter_example",
    summary: "give an example in the parameter's description",
    ops: |harness| describe_parameter(harness, &catalogue().texts.tools.parameter_example),
};

pub(crate) const PLAIN_SCHEMA: Repair = Repair {
    name: "plain_schema",
    summary: "reduce the tool's parameters to the program alone",
    ops: |harness| {
        let (name, tool) = program_tool(harness)?;
        let field = tool_field(name.as_str()).join("parameters");
        let plain = parameters(likely_code_argument(tool)?);
        (tool.parameters != plain).then(|| vec![PatchOp::replace(field, plain)])
    },
};

pub(crate) const STATEFUL: Repair = Repair {
    name: "stateful",
    summary: "keep variables from one call of the tool to the next",
    ops: |harness| {
        let (name, tool) = program_tool(harness)?;
        // The field is left out of the document where it holds the default.
        let field = tool_field(name.as_str()).join("state");
        (tool.state == ToolState::Stateless)
            .then(|| vec![PatchOp::add(field, value(ToolState::Stateful))])
    },
};

pub(crate) const TIMEOUT_UP: Repair = Repair {
    name: "timeout_up",
    summary: "give a tool call more time",
    ops: |harness| {
        let old = |limits: &ToolLimits| limits.timeout_ms;
        raise_limit(harness, "timeout_ms", old, 4, 5000, TIMEOUT_MS)
    },
};

pub(crate) const MEMORY_UP: Repair = Repair {
    name: "memory_up",
    summary: "give a tool call more memory",
    ops: |harness| {
        let old = |limits: &ToolLimits| limits.memory_mib;
        raise_limit(harness, "memory_mib", old, 2, 512, MEMORY_MIB)
    },
};

pub(crate) const OUTPUT_UP: Repair = Repair {
    name: "output_up",
    summary: "show more of a tool's output",
    ops: |harness| {
        let old = |limits: &ToolLimits| limits.output_chars as u64;
        raise_limit(harness, "output_chars", old, 4, 2000, OUTPUT_CHARS as u64)
    },
};

pub(crate) const PYTHON_TOOL: Repair = Repair {
    name: "python_tool",
    summary: "add a Python tool",
    ops: |harness| {
        let tool = Tool {
            description: catalogue().texts.tools.description_when.clone(),
            parameters: parameters("code"),
            backend: Backend::Python,
            state: harness::ToolState::default(),
            limits: ToolLimits::default(),
        };
        harness
            .tools
            .is_empty()
            .then(|| vec![PatchOp::add(tool_field("python"), value(tool))])
    },
};

pub(crate) const PROGRAM_TOOL_ALONE: Repair = Repair {
    name: "program_tool_alone",
    summary: "leave no tool but the one for programs",
    ops: |harness| {
        let (kept, _) = program_tool(harness)?;
        leave_alone(harness, kept)
    },
};

pub(crate) const CALL_IT_PYTHON: Repair = Repair {
    name: "call_it_python",
    summary: "give the tool for programs the name python",
    ops: |harness| {
        const NAME: &str = "python";
        let (name, tool) = program_tool(harness)?;
        let is_free = harness.tools.keys().all(|known| known.as_str() != NAME);
        let add = PatchOp::add(tool_field(NAME), value(tool));
        is_free.then(|| vec![remove(name.as_str()), add])
    },
};

/// Removes the tools beside one; `None` if it is alone.
pub(crate) fn leave_alone(harness: &Harness, kept: &ToolName) -> Option<Vec<PatchOp>> {
    let others = harness.tools.keys().filter(|name| *name != kept);
    if_any(others.map(|name| remove(name.as_str())))
}

/// Removes a tool.
pub(crate) fn remove(name: &str) -> PatchOp {
    PatchOp::remove(tool_field(name))
}

/// The argument that reads like the one for programs, or else the one that is run.
fn likely_code_argument(tool: &Tool) -> Option<&str> {
    let properties = tool.parameters["properties"].as_object()?;
    let is_text = |schema: &Value| schema["type"] == "string";
    let mut texts = properties.iter().filter(|(_, schema)| is_text(schema));
    let likely = texts.find(|(name, schema)| {
        let description = schema["description"].as_str();
        speaks_of_programs(name) || description.is_some_and(speaks_of_programs)
    });
    likely
        .map(|(name, _)| name.as_str())
        .or_else(|| tool.code_argument())
}

fn tool_field(name: &str) -> FieldPath {
    path("tools").join(name)
}

fn parameters(argument: &str) -> Value {
    let description = &catalogue().texts.tools.parameter_print;
    json!({
        "type": "object",
        "properties": { argument: { "type": "string", "description": description } },
        "required": [argument],
    })
}

fn describe_tool(harness: &Harness, text: &str) -> Option<Vec<PatchOp>> {
    let (name, tool) = program_tool(harness)?;
    let text = with_tool_name(text, harness)?;
    let field = tool_field(name.as_str()).join("description");
    (tool.description != text).then(|| vec![PatchOp::replace(field, value(text))])
}

/// Changes the description of the parameter that takes the program. In a fenced block there are no
/// parameters, and the model doesn't read of any.
fn describe_parameter(harness: &Harness, text: &str) -> Option<Vec<PatchOp>> {
    if harness.middleware.protocol.call_format == CallFormat::Fenced {
        return None;
    }
    let (name, tool) = program_tool(harness)?;
    let argument = tool.code_argument()?;
    let field = tool_field(name.as_str())
        .join("parameters")
        .join("properties")
        .join(argument)
        .join("description");
    match tool.parameters["properties"][argument].get("description") {
        Some(old) if old == text => None,
        Some(_) => Some(vec![PatchOp::replace(field, value(text))]),
        None => Some(vec![PatchOp::add(field, value(text))]),
    }
}

/// Multiplies a limit of the program tool, to at least `least` and at most `most`.
fn raise_limit(
    harness: &Harness,
    field: &str,
    old: fn(&ToolLimits) -> u64,
    factor: u64,
    least: u64,
    most: u64,
) -> Option<Vec<PatchOp>> {
    let (name, tool) = program_tool(harness)?;
    let old = old(&tool.limits);
    let new = old.saturating_mul(factor).clamp(least, most);
    let field = tool_field(name.as_str()).join("limits").join(field);
    (new > old).then(|| vec![PatchOp::replace(field, value(new))])
}
