//! The script that is run for a program: with the Python of skills before it, and perhaps with a print
//! of its last expression.

use harness::{Harness, ToolState};
use serde_json::Value;

use crate::conversation;

/// What is put around the programs of one rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Python of the skills that are on; may be empty.
    skills: String,
}

impl Script {
    /// For rollouts of `problem`.
    pub fn new(harness: &Harness, problem: &str) -> Self {
        Script {
            skills: conversation::skills_python(harness, problem),
        }
    }

    /// The script of a program. An interpreter that keeps its state has the skills' Python from the
    /// first program on.
    ///
    /// With a marker, the value of the program's last expression is printed, as an interactive
    /// interpreter does; then the marker is the last line of the standard error.
    pub fn of(&self, program: &str, state: ToolState, marker: Option<&str>) -> String {
        match marker {
            Some(marker) => self.printing(program, state, marker),
            None if self.skills.is_empty() => program.to_owned(),
            // A JSON string is a Python string literal.
            None => format!(
                "{}exec(compile({}, '<program>', 'exec'), globals())\n",
                self.prelude("globals()", state, ""),
                Value::from(program)
            ),
        }
    }

    fn printing(&self, program: &str, state: ToolState, marker: &str) -> String {
        let space = match state {
            ToolState::Stateless => "{'__name__': '__main__', '__builtins__': __builtins__}",
            // Where the next call finds what this one defines.
            ToolState::Stateful => "globals()",
        };
        let prelude = self.prelude("space", state, "    ");
        let (program, marker) = (Value::from(program), Value::from(marker));
        format!(
            "import ast as _ast, sys as _sys
def _run(source, marker):
    tree = _ast.parse(source, '<program>')
    space = {space}
{prelude}    if not tree.body or not isinstance(tree.body[-1], _ast.Expr):
        exec(compile(tree, '<program>', 'exec'), space)
        return
    last = _ast.Expression(tree.body.pop().value)
    exec(compile(tree, '<program>', 'exec'), space)
    value = eval(compile(last, '<program>', 'eval'), space)
    if value is not None:
        print(value)
        _sys.stdout.flush()
        _sys.stderr.write('\\n' + marker + '\\n')
_run({program}, {marker})
"
        )
    }

    /// Lines that run the skills' Python in `space`; none where there is none.
    fn prelude(&self, space: &str, state: ToolState, indent: &str) -> String {
        if self.skills.is_empty() {
            return String::new();
        }
        let skills = Value::from(self.skills.as_str());
        let run = format!("exec(compile({skills}, '<skills>', 'exec'), {space})");
        match state {
            ToolState::Stateless => format!("{indent}{run}\n"),
            // Once: what the skills keep in variables lives on as well.
            ToolState::Stateful => format!(
                "{indent}if '__skills__' not in {space}:\n{indent}    {run}\n{indent}    {space}['__skills__'] = True\n"
            ),
        }
    }
}
