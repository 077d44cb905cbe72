// A Helia peer (TCP, memory stores) for Holdfast's black-box tests, in a
// process of its own. It prints {"id", "addrs"} when it is ready and then obeys
// one JSON order a line on standard input, answering one JSON line each, in
// any order of completion, with the order's "n":
//
//   {"n", "do": "add", "count", "size"}  random files -> {"files": [{cid, size, sha256}]}
//   {"n", "do": "fetch", "cid", "from"}  the file from these peers -> {"files": [one]}
//
// It ends when standard input ends.

import { createHash, randomBytes } from 'node:crypto'
import { createInterface } from 'node:readline'
import { withBitswap } from '@helia/bitswap'
import { withLibp2pLight } from '@helia/libp2p'
import { unixfs } from '@helia/unixfs'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { tcp } from '@libp2p/tcp'
import { tls } from '@libp2p/tls'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { blake3 } from '@noble/hashes/blake3.js'
import { createHeliaLight } from 'helia'
import { CID } from 'multiformats/cid'
import { from } from 'multiformats/hashes/hasher'

const fetchTimeout = 120_000 // milliseconds for one whole fetch

// What the blocks of Holdfast are named by; Helia leaves it to its user.
const hashers = [from({ name: 'blake3', code: 0x1e, encode: (bytes) => blake3(bytes) })]

const helia = await withBitswap(withLibp2pLight(createHeliaLight({ hashers }), {
  addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
  transports: [tcp()],
  connectionEncrypters: [noise(), tls()],
  streamMuxers: [yamux()],
  services: { identify: identify() }
})).start()
const files = unixfs(helia)

const print = (value) => process.stdout.write(JSON.stringify(value) + '\n')
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex')

async function add ({ count, size }) {
  const added = []
  for (let i = 0; i < count; i++) {
    const bytes = randomBytes(size)
    const cid = await files.addBytes(bytes)
    added.push({ cid: cid.toString(), size, sha256: sha256(bytes) })
  }
  return added
}

async function fetch ({ cid, from }) {
  const signal = AbortSignal.timeout(fetchTimeout)
  const addresses = from.map(a => multiaddr(a)).filter(a => /\/tcp\/\d+\/p2p\//.test(a.toString()))
  await helia.libp2p.dial(addresses, { signal })
  const chunks = []
  for await (const chunk of files.cat(CID.parse(cid), { signal })) {
    chunks.push(chunk)
  }
  const bytes = Buffer.concat(chunks)
  return [{ cid, size: bytes.length, sha256: sha256(bytes) }]
}

const orders = { add, fetch }

async function obey (line) {
  const order = JSON.parse(line)
  try {
    print({ n: order.n, files: await orders[order.do](order) })
  } catch (err) {
    print({ n: order.n, error: String(err?.stack ?? err) })
  }
}

print({ id: helia.libp2p.peerId.toString(), addrs: helia.libp2p.getMultiaddrs().map(String) })
createInterface({ input: process.stdin }).on('line', obey).on('close', async () => {
  await helia.stop()
  process.exit(0)
})
