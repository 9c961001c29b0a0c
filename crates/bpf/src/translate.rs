//! Programs as machine code of this computer, by Cranelift.
//!
//! A function of a program becomes a function of the host, `(host, r1, r2, r3, r4, r5) -> r0`, where `host` points to a structure that
//! begins with a [`Frame`]. Instructions are counted by block; a jump backwards looks whether there are too many. A load from outside of
//! the region gives 0; a store there does nothing and is remembered as a [`Fault`](crate::Fault).

mod body;

use cranelift_codegen::ir::{AbiParam, FuncRef, Signature, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module};
use thiserror::Error;

use crate::instruction::Instruction;
use crate::program::Program;
use crate::runtime::{Frame, Site};
use body::Body;

/// A function of the host that programs may call. `host` is what the code was entered with.
pub type HostFunction = unsafe extern "C" fn(host: *mut Frame, r1: u64, r2: u64, r3: u64, r4: u64, r5: u64) -> u64;

/// What a call leads to.
#[derive(Clone, Debug)]
pub enum Callee {
    /// A function of the host.
    Function(HostFunction),
    /// A few instructions in its place.
    Inline(Inline),
    /// Nothing: the loader marked the call as never reached, or it does not exist. Reaching it is a fault with these words.
    Unreachable(String),
}

/// Calls that are not worth a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inline {
    /// Does nothing and gives 0: locks, where CPUs take turns.
    Nothing,
    /// Reads [`Frame::now_ns`].
    Now,
    /// Reads [`Frame::cpu`].
    Cpu,
    /// `bpf_iter_num_new(iterator, start, end)`.
    NumberNew,
    /// `bpf_iter_num_next(iterator)`.
    NumberNext,
    /// `bpf_cpumask_test_cpu(cpu, mask)`.
    TestCpu,
}

/// Says what the names in a program mean.
pub trait Resolver {
    /// Value of a 64-bit immediate that is not a plain number (source 1 to 6): a map, an address in a map's value, a kernel symbol. `next` is
    /// the immediate of the second half.
    ///
    /// # Errors
    /// When there is no such thing.
    fn immediate(&mut self, load: Instruction, next: i32) -> Result<u64, String>;

    /// What stands for the address of a function of the program, given to timers and the like.
    fn callback(&mut self, program: &Program, function: usize) -> u64;

    /// A helper by number.
    fn helper(&mut self, number: i32) -> Callee;

    /// A kernel function by its number in the kernel's type information.
    fn kfunc(&mut self, number: i32) -> Callee;
}

/// Why a program could not be translated.
#[derive(Debug, Error)]
pub enum TranslateError {
    /// A name in the program means nothing.
    #[error("program `{program}`, instruction {instruction}: {reason}")]
    Name {
        /// Program.
        program: String,
        /// Instruction.
        instruction: usize,
        /// What was asked for.
        reason: String,
    },
    /// The code generator failed, which is a fault of ours.
    #[error("cannot translate program `{program}`: {reason}")]
    Generator {
        /// Program.
        program: String,
        /// What it says.
        reason: String,
    },
}

/// A translated function, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(usize);

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
        for number in 0..program.functions.len() {
            let name = format!("{}_{number}_{}", program.name, first + number);
            let declared = self.module.declare_function(&name, Linkage::Local, &self.signature);
            self.functions.push(declared.map_err(|error| generator(&error))?);
        }
        for function in 0..program.functions.len() {
            let mut context = self.module.make_context();
            context.func.signature = self.signature.clone();
            let callees: Vec<FuncRef> = self.functions[first..]
                .iter()
                .map(|&callee| self.module.declare_func_in_func(callee, &mut context.func))
                .collect();
            let mut builder = FunctionBuilder::new(&mut context.func, &mut self.context);
            let host_call = builder.import_signature(self.signature.clone());
            let mut body = Body::new(program, function, builder, callees, host_call, &mut self.sites, resolver);
            body.translate()?;
            body.finish();
            self.module
                .define_function(self.functions[first + function], &mut context)
                .map_err(|error| generator(&error))?;
            self.module.clear_context(&mut context);
        }
        self.instructions += program.instructions.len();
        Ok((first..self.functions.len()).map(Entry).collect())
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

    /// Functions that were translated.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.addresses.len()
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
