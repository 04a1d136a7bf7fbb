//! Reading and changing what lies outside: files, `/proc`, a database, gold answers, environment.

use super::Attack;
use super::Control::{Breaches, BreachesAsRoot, Unchecked};

pub(super) const ATTACKS: &[Attack] = &[
    // Gold answers and databases.
    Attack::new("read a gold answer", "breach(open(GOLD).read())", Breaches),
    Attack::new("read it by descriptor", "breach(os.read(os.open(GOLD, 0), 99))", Breaches),
    Attack::new("read it through a link", "os.symlink(GOLD, 'l'); breach(open('l').read())", Breaches),
    Attack::new("read it through a hard link", "os.link(GOLD, 'h'); breach(open('h').read())", Unchecked("the scratch directory may be another file system")),
    Attack::new("read it through a chain of links", "os.symlink('b', 'a'); os.symlink(os.path.dirname(GOLD), 'b'); breach(open('a/' + os.path.basename(GOLD)).read())", Breaches),
    Attack::new("read it by climbing up", "breach(open('../' * 40 + GOLD.lstrip('/')).read())", Breaches),
    Attack::new("read it through its own descriptor's directory", "d = os.open(os.path.dirname(GOLD), os.O_RDONLY); breach(os.read(os.open(os.path.basename(GOLD), 0, dir_fd=d), 99))", Breaches),
    Attack::new("read it by an O_PATH descriptor", "d = os.open('/', os.O_PATH); breach(os.read(os.open(GOLD.lstrip('/'), 0, dir_fd=d), 99))", Breaches),
    Attack::new("map it", "import mmap; breach(mmap.mmap(os.open(GOLD, 0), 0, prot=mmap.PROT_READ)[:])", Breaches),
    Attack::new("copy it in the kernel", "o = os.open('o', os.O_RDWR | os.O_CREAT); os.sendfile(o, os.open(GOLD, 0), 0, 99); breach(os.path.getsize('o'))", Breaches),
    Attack::new("import it", "import sys; sys.path.insert(0, os.path.dirname(GOLD)); import gold; breach(gold.ANSWER)", Breaches),
    Attack::new("let the import system read it", "import importlib.util as u; breach(u.spec_from_file_location('x', GOLD).loader.get_data(GOLD))", Breaches),
    Attack::new("let a traceback show it", "import linecache; breach(linecache.getline(GOLD, 1))", Breaches),
    Attack::new("race a link against its check", "\
import threading
open('own', 'w').write('own'); os.symlink(GOLD, 'l1'); os.symlink('own', 'l2')
def swap():
    for n in range(2000):
        try: os.replace('l1' if n % 2 else 'l2', 'swapped'); os.symlink(GOLD if n % 2 else 'own', 'l1' if n % 2 else 'l2')
        except OSError: pass
t = threading.Thread(target=swap); t.start()
while t.is_alive():
    try: text = open('swapped').read()
    except OSError: continue
    if 'ANSWER' in text: breach(text)
t.join()", Breaches),
    Attack::new("find its size", "breach(os.stat(GOLD).st_size and open(GOLD))", Breaches),
    Attack::new("list its directory", "breach(os.listdir(os.path.dirname(GOLD)))", Breaches),
    Attack::new("scan its directory", "breach([e.name for e in os.scandir(os.path.dirname(GOLD))])", Breaches),
    Attack::new("open the run's database", "import sqlite3; breach(sqlite3.connect(f'file:{DATABASE}?mode=ro', uri=True).execute('select * from sqlite_master').fetchall() or 'opened')", Breaches),
    Attack::new("read the database's bytes", "breach(open(DATABASE, 'rb').read(16))", Breaches),
    Attack::new("read the database's journal", "breach(open(DATABASE + '-wal', 'rb').read())", Breaches),
    // The machine.
    Attack::new("read the users", "breach(open('/etc/passwd').read())", Breaches),
    Attack::new("read the passwords", "breach(open('/etc/shadow').read())", BreachesAsRoot),
    Attack::new("read host names", "breach(open('/etc/hosts').read() or 'empty')", Breaches),
    Attack::new("read the machine's id", "breach(open('/proc/sys/kernel/random/boot_id').read())", Breaches),
    Attack::new("list the root", "breach(os.listdir('/home') or os.listdir('/etc'))", Breaches),
    Attack::new("list the home directory", "breach(os.listdir(HOME) or 'empty')", Breaches),
    Attack::new("read the sources", "breach(open(SOURCES + '/Cargo.toml').read())", Breaches),
    Attack::new("read memory of the kernel", "breach(os.open('/dev/mem', os.O_RDONLY) or os.open('/dev/kmsg', os.O_RDONLY))", Unchecked("many kernels refuse it to everybody")),
    Attack::new("read a disk", "breach([os.read(os.open('/dev/' + d, os.O_RDONLY), 9) for d in ('vda', 'sda', 'nvme0n1') if os.path.exists('/dev/' + d)] or None)", Unchecked("the disk has another name everywhere")),
    Attack::new("make a device", "os.mknod('d', 0o20666, os.makedev(1, 1)); breach(os.stat('d'))", BreachesAsRoot),
    Attack::new("make a named pipe to outside", "os.mkfifo(VICTIMS + '/pipe'); breach(os.stat(VICTIMS + '/pipe'))", Breaches),
    // /proc.
    Attack::new("list the processes", "breach([p for p in os.listdir('/proc') if p.isdigit()])", Breaches),
    Attack::new("read a process's environment", "breach(open(f'/proc/{VICTIM}/environ').read() or 'empty')", Breaches),
    Attack::new("read the parent's environment", "breach(open(f'/proc/{os.getppid()}/environ').read() or 'empty')", Breaches),
    Attack::new("read process 1's command", "breach(open('/proc/1/cmdline').read() or 'empty')", Breaches),
    Attack::new("read a process's memory", "breach(open(f'/proc/{VICTIM}/maps').read() or 'empty')", Breaches),
    Attack::new("write its own memory", "breach(open('/proc/self/mem', 'r+b'))", Breaches),
    Attack::new("see the mounts", "breach(open('/proc/self/mountinfo').read())", Breaches),
    Attack::new("leave through another's root", "breach(os.listdir(f'/proc/{VICTIM}/root/etc'))", BreachesAsRoot),
    Attack::new("leave through another's directory", "breach(os.listdir(f'/proc/{VICTIM}/cwd'))", Breaches),
    Attack::new("steal another's descriptor", "breach(os.listdir(f'/proc/{VICTIM}/fd'))", Breaches),
    Attack::new("become easier to kill last", "open('/proc/self/oom_score_adj', 'w').write('-500'); breach('written')", BreachesAsRoot),
    Attack::new("change a kernel setting", "breach(os.open('/proc/sys/kernel/hostname', os.O_WRONLY))", BreachesAsRoot),
    Attack::new("read control groups", "breach(os.listdir('/sys/fs/cgroup'))", Breaches),
    // Changing things.
    Attack::new("overwrite a file", "open(VICTIMS + '/a', 'w').write('x'); breach(open(VICTIMS + '/a').read())", Breaches),
    Attack::new("append to a file", "breach(open(VICTIMS + '/a', 'a').write('x'))", Breaches),
    Attack::new("truncate a file", "os.truncate(VICTIMS + '/a', 0); breach('cut')", Breaches),
    Attack::new("remove a file", "os.unlink(VICTIMS + '/b'); breach('removed')", Breaches),
    Attack::new("rename a file", "os.rename(VICTIMS + '/c', VICTIMS + '/d'); breach('renamed')", Breaches),
    Attack::new("exchange files through directories", "os.rename(VICTIMS + '/a', 'stolen'); breach(open('stolen').read() or 'empty')", Unchecked("the scratch directory may be another file system")),
    Attack::new("make a directory", "os.mkdir(VICTIMS + '/new'); breach('made')", Breaches),
    Attack::new("remove a directory", "os.rmdir(VICTIMS + '/empty'); breach('removed')", Breaches),
    Attack::new("plant a link", "os.symlink('/etc/passwd', VICTIMS + '/link'); breach('planted')", Breaches),
    Attack::new("change a mode", "os.chmod(VICTIMS + '/a', 0o777); breach('changed')", Breaches),
    Attack::new("change an owner", "os.chown(VICTIMS + '/a', 12345, 12345); breach('changed')", BreachesAsRoot),
    Attack::new("change times", "os.utime(VICTIMS + '/a', (0, 0)); breach('changed')", Breaches),
    Attack::new("set an attribute", "os.setxattr(VICTIMS + '/a', 'user.x', b'1'); breach('set')", Unchecked("not every file system has attributes")),
    Attack::new("write through a link", "os.symlink(VICTIMS + '/a', 'l'); open('l', 'w').write('x'); breach('written')", Breaches),
    Attack::new("write through a swapped directory", "os.mkdir('d'); os.rmdir('d'); os.symlink(VICTIMS, 'd'); open('d/planted', 'w').write('x'); breach('written')", Breaches),
    Attack::new("change the interpreter", "open(os.path.join(os.path.dirname(os.__file__), 'planted.py'), 'w'); breach('written')", Unchecked("it would change the interpreter of this machine")),
    Attack::new("plant a start-up hook", "import sys; open(sys.path[-1] + '/planted.pth', 'w'); breach('written')", Unchecked("it would change the interpreter of this machine")),
    Attack::new("write to the temporary folder of the machine", "open('/var/tmp/planted-by-a-test', 'w'); os.unlink('/var/tmp/planted-by-a-test'); breach('written')", Breaches),
    // Environment.
    Attack::new("find a secret variable", "breach([v for v in os.environ.values() if v == SECRET])", Breaches),
    Attack::new("find it behind Python's back", "import ctypes; g = ctypes.CDLL(None).getenv; g.restype = ctypes.c_char_p; breach(g(b'CARGO_MANIFEST_DIR') == SECRET.encode())", Breaches),
    Attack::new("find it on the stack", "\
import ctypes
e = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), 'environ')
n = 0
while e[n]:
    if e[n].endswith(b'=' + SECRET.encode()): breach(e[n])
    n += 1", Breaches),
    Attack::new("find it in the command line", "import sys; breach([a for a in sys.orig_argv if a == SECRET])", Unchecked("the secret is no argument anywhere")),
];
