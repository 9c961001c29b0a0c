//! Programs as machine code of this computer, by Cranelift.
//!
//! A function of a program becomes a function of the host, `(host, r1, r2, r3, r4, r5) -> r0`, where `host` points to a structure that
//! begins with a [`Frame`]. Instructions are counted by block; a jump backwards looks whether there are too many. A load from outside of
//! the region gives 0; a store there ends its function and is remembered as a [`Fault`](crate::Fault).

mod access;
mod arguments;
mod body;
mod calls;

use std::borrow::Cow;

use cranelift_codegen::inline::{self, InlineCommand};
use cranelift_codegen::ir::{self, AbiParam, FuncRef, Signature, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};

use crate::program::Program;
use crate::resolver::{Entry, HostFunction, Resolver, TranslateError};
use crate::runtime::{Frame, Site};
use body::{Body, Callees};

/// Collects programs.
pub struct Translator {
    module: JITModule,
    context: FunctionBuilderContext,
    functions: Vec<FuncId>,
    sites: Vec<Site>,
    signature: Signature,
    instructions: usize,
}

/// Code that can be run.
pub struct Code {
    module: Option<JITModule>,
    addresses: Vec<*const u8>,
    sites: Vec<Site>,
    instructions: usize,
}

// SAFETY: code and sites are never changed once they are there; running code needs a host, which says who may.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Translator {
    /// With a generator for this computer.
    ///
    /// # Errors
    /// When Cranelift has none.
    pub fn new() -> Result<Self, TranslateError> {
        let failed = |reason: String| TranslateError::Generator { program: "(none)".into(), reason };
        let mut flags = settings::builder();
        for (name, value) in [("opt_level", "speed"), ("is_pic", "false"), ("enable_verifier", "false")] {
            flags.set(name, value).map_err(|error| failed(error.to_string()))?;
        }
        let isa = cranelift_native::builder().map_err(|error| failed(error.into()))?;
        let isa = isa.finish(settings::Flags::new(flags)).map_err(|error| failed(error.to_string()))?;
        let module = JITModule::new(JITBuilder::with_isa(isa, cranelift_module::default_libcall_names()));
        let mut signature = module.make_signature();
        signature.params = vec![AbiParam::new(types::I64); 6];
        signature.returns = vec![AbiParam::new(types::I64)];
        Ok(Self {
            module,
            context: FunctionBuilderContext::new(),
            functions: Vec::new(),
            sites: Vec::new(),
            signature,
            instructions: 0,
        })
    }

    /// Translates a program; gives the entry of each of its functions.
    ///
    /// # Errors
    /// When the resolver does not know what it names.
    pub fn add(&mut self, program: &Program, resolver: &mut dyn Resolver) -> Result<Vec<Entry>, TranslateError> {
        let generator = |error: &dyn std::fmt::Display| TranslateError::Generator {
            program: program.name.clone(),
            reason: error.to_string(),
        };
        let first = self.functions.len();
        let taken = arguments::arguments(program, resolver);
        let throws = arguments::throws(program, resolver);
        for (number, &count) in taken.iter().enumerate() {
            let name = format!("{}_{number}_{}", program.name, first + number);
            let declared = self.module.declare_function(&name, Linkage::Local, &self.signature_of(count));
            self.functions.push(declared.map_err(|error| generator(&error))?);
        }
        let signatures: [Signature; 6] = std::array::from_fn(|count| self.signature_of(count as u8));
        let mut bodies = Vec::with_capacity(taken.len());
        for (function, &count) in taken.iter().enumerate() {
            let mut context = self.module.make_context();
            context.func.signature = signatures[usize::from(count)].clone();
            let mut builder = FunctionBuilder::new(&mut context.func, &mut self.context);
            let host_calls = signatures.clone().map(|signature| builder.import_signature(signature));
            let callees =
                Callees { module: &mut self.module, functions: &self.functions[first..], taken: &taken, throws };
            let mut body = Body::new(program, function, builder, callees, host_calls, &mut self.sites, resolver);
            body.translate()?;
            body.finish();
            context.func.dfg.resolve_all_aliases();
            bodies.push(context.func);
        }
        for (function, body) in bodies.iter().enumerate() {
            let mut context = self.module.make_context();
            context.func = body.clone();
            let id = self.functions[first + function];
            let small =
                SmallBodies { program, bodies: &bodies, first: self.functions[first].as_u32(), room: MOST_INLINED };
            context.inline(small).map_err(|error| generator(&error))?;
            self.module.define_function(id, &mut context).map_err(|error| generator(&error))?;
        }
        self.instructions += program.instructions.len();
        Ok((first..self.functions.len()).map(Entry).collect())
    }

    /// Of a function that takes so many registers.
    fn signature_of(&self, count: u8) -> Signature {
        let mut signature = self.signature.clone();
        signature.params.truncate(1 + usize::from(count));
        signature
    }

    /// Makes the code runnable.
    ///
    /// # Errors
    /// When the system gives no executable memory.
    pub fn finish(mut self) -> Result<Code, TranslateError> {
        let failed = |error: cranelift_module::ModuleError| TranslateError::Generator {
            program: "(all)".into(),
            reason: error.to_string(),
        };
        self.module.finalize_definitions().map_err(failed)?;
        let addresses = self.functions.iter().map(|&function| self.module.get_finalized_function(function)).collect();
        Ok(Code { module: Some(self.module), addresses, sites: self.sites, instructions: self.instructions })
    }
}

/// Most instructions of a function that is put in the place of its calls.
const SMALL: usize = 48;

/// Most instructions that are put into a function in this way.
const MOST_INLINED: usize = 2000;

/// Puts small functions in the place of their calls.
struct SmallBodies<'a> {
    program: &'a Program,
    bodies: &'a [ir::Function],
    /// Number of the program's first function.
    first: u32,
    /// Instructions that may still be added.
    room: usize,
}

impl inline::Inline for SmallBodies<'_> {
    fn inline(
        &mut self,
        caller: &ir::Function,
        _: ir::Inst,
        _: ir::Opcode,
        callee: FuncRef,
        _: &[ir::Value],
    ) -> InlineCommand<'_> {
        let ir::ExternalName::User(name) = caller.dfg.ext_funcs[callee].name else { return InlineCommand::KeepCall };
        let function = (caller.params.user_named_funcs()[name].index - self.first) as usize;
        let length = self.program.end(function) - self.program.functions[function];
        if length > SMALL.min(self.room) {
            return InlineCommand::KeepCall;
        }
        self.room -= length;
        InlineCommand::Inline { callee: Cow::Borrowed(&self.bodies[function]), visit_callee: true }
    }
}

impl Code {
    /// Runs a function. Afterwards [`Code::fault`] says whether something went wrong.
    ///
    /// # Safety
    /// `host` points to what the host functions of the code expect, beginning with a [`Frame`], and the region is mapped.
    #[inline]
    pub unsafe fn run(&self, entry: Entry, host: *mut Frame, arguments: [u64; 5]) -> u64 {
        // SAFETY: the translator made this function with this signature; the host is the caller's promise.
        unsafe {
            let function: HostFunction = std::mem::transmute(self.addresses[entry.0]);
            let [r1, r2, r3, r4, r5] = arguments;
            function(host, r1, r2, r3, r4, r5)
        }
    }

    /// What went wrong since the frame was made.
    #[must_use]
    pub fn fault(&self, frame: &Frame) -> Option<&Site> {
        self.sites.get(usize::try_from(frame.fault).ok()?.checked_sub(1)?)
    }

    /// Instructions that were translated.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.instructions
    }

    /// Where its functions begin.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.addresses.iter().map(|begin| begin.addr() as u64)
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: the addresses go with `self`.
            unsafe { module.free_memory() };
        }
    }
}
