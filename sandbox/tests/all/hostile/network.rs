//! Talking to anybody: loopback, the outside, names, local sockets.

use super::Attack;
use super::Control::{Breaches, BreachesAsRoot, Unchecked};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::new(
        "connect to loopback",
        "import socket; breach(socket.create_connection(('127.0.0.1', PORT), 2))",
        Breaches,
    ),
    Attack::new(
        "connect to another loopback address",
        "import socket; breach(socket.create_connection(('127.9.9.9', PORT_ANY), 2))",
        Breaches,
    ),
    Attack::new(
        "connect by IPv6",
        "import socket; s = socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', PORT)); breach(s)",
        Unchecked("not every machine has IPv6"),
    ),
    Attack::new(
        "connect without blocking",
        "import socket; s = socket.socket(); s.setblocking(False); breach(s.connect_ex(('127.0.0.1', PORT)) in (0, 115))",
        Breaches,
    ),
    Attack::new(
        "send a datagram",
        "import socket; breach(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT)))",
        Breaches,
    ),
    Attack::new(
        "listen",
        "import socket; breach(socket.create_server(('127.0.0.1', 0)))",
        Breaches,
    ),
    Attack::new(
        "connect to the outside",
        "import socket; s = socket.socket(); s.setblocking(False); breach(s.connect_ex(('192.0.2.1', 80)) == 115)",
        Unchecked("the machine may have no route"),
    ),
    Attack::new(
        "reach the cloud's metadata",
        "import socket; s = socket.socket(); s.setblocking(False); breach(s.connect_ex(('169.254.169.254', 80)) == 115)",
        Unchecked("the machine may have no route"),
    ),
    Attack::new(
        "resolve a name",
        "import socket; breach(socket.getaddrinfo('example.com', 80))",
        Unchecked("the machine may have no resolver"),
    ),
    Attack::new(
        "resolve localhost",
        "import socket; breach(socket.gethostbyname('localhost'))",
        Breaches,
    ),
    Attack::new(
        "ask a name server",
        "import socket; breach(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.53', 53)) is None)",
        Breaches,
    ),
    Attack::new(
        "fetch a page",
        "import urllib.request as u; breach(u.urlopen(f'http://127.0.0.1:{PORT_HTTP}/', timeout=2).read())",
        Breaches,
    ),
    Attack::new(
        "read a local address as a file",
        "import urllib.request as u; breach(u.urlopen('file://' + GOLD).read())",
        Breaches,
    ),
    Attack::new(
        "connect to a local socket",
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect(UNIX); breach(s)",
        Breaches,
    ),
    Attack::new(
        "connect to an abstract socket",
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + ABSTRACT); breach(s)",
        Breaches,
    ),
    Attack::new(
        "offer a local socket",
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('s'); breach(s)",
        Breaches,
    ),
    Attack::new(
        "rebind a pair",
        "import socket; a, b = socket.socketpair(); a.bind('\\0box'); breach(a)",
        Breaches,
    ),
    Attack::new(
        "send a pair's end elsewhere",
        "import socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', '\\0' + ABSTRACT_DATAGRAM); breach('sent')",
        Breaches,
    ),
    Attack::new(
        "pass a descriptor",
        "import socket, array; a, b = socket.socketpair(); a.sendmsg([b'x'], [(1, 1, array.array('i', [0]))]); breach('passed')",
        Breaches,
    ),
    Attack::new(
        "read raw packets",
        "import socket; breach(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))",
        BreachesAsRoot,
    ),
    Attack::new(
        "send raw packets",
        "import socket; breach(socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))",
        BreachesAsRoot,
    ),
    Attack::new(
        "configure the network",
        "import socket; breach(socket.socket(16, socket.SOCK_RAW, 0))",
        Breaches,
    ),
    Attack::new(
        "talk to the hypervisor",
        "import socket; breach(socket.socket(40, socket.SOCK_STREAM))",
        Unchecked("not every kernel has it"),
    ),
    Attack::new(
        "use the kernel's ciphers",
        "import socket; breach(socket.socket(38, 5, 0))",
        Unchecked("not every kernel has it"),
    ),
    Attack::new(
        "list interfaces",
        "import socket; breach([n for _, n in socket.if_nameindex() if n != 'lo'])",
        Unchecked("the machine may have no interface"),
    ),
    Attack::new(
        "run an event loop with a server",
        "import asyncio\nasync def f(): return (await asyncio.start_server(lambda r, w: None, '127.0.0.1', 0)).sockets\nbreach(asyncio.run(f()))",
        Breaches,
    ),
];
