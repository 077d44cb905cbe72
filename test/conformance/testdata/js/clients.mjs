// The public JavaScript clients against a Holdfast node: the generated client of
// the Pinning Service API, and Helia's remote pins over it. The only argument is
// JSON: {"base", "token": of an account of its own, "paged": token of the account
// with many pins, "at_least", "created": of those with a name, by it}. Prints
// {"seen", "repeated", "requests"} of the walk through those, and {"helia"}, the
// names that Helia's list came to, and ends with 1 and the reason when a check
// fails.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { withBitswap } from '@helia/bitswap'
import { withLibp2pLight } from '@helia/libp2p'
import { createRemotePins } from '@helia/remote-pinning'
import { unixfs } from '@helia/unixfs'
import { Configuration, RemotePinningServiceClient, Status } from '@ipfs-shipyard/pinning-service-client'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { tcp } from '@libp2p/tcp'
import { tls } from '@libp2p/tls'
import { yamux } from '@libp2p/yamux'
import { createHeliaLight } from 'helia'
import { CID } from 'multiformats/cid'

const pinnedWithin = 60_000 // milliseconds
const all = [Status.Queued, Status.Pinning, Status.Pinned, Status.Failed]
const { base, token, paged, at_least: atLeast, cid: known, created } = JSON.parse(process.argv[2])

const client = (accessToken) => new RemotePinningServiceClient(new Configuration({ endpointUrl: base, accessToken }))
const refused = async (call, status) => {
  const err = await call.then(() => assert.fail('it was not refused'), err => err)
  assert.equal((err.response ?? err).status, status)
}

async function generated () {
  const pins = client(token)
  const added = await pins.pinsPost({ pin: { cid: known, name: 'first', meta: { app: 'a' } } })
  assert.equal(added.status, Status.Queued)
  assert.equal(added.pin.name, 'first')
  assert.ok([...added.delegates].length > 0)
  const got = await pins.pinsRequestidGet({ requestid: added.requestid })
  assert.equal(got.created.getTime(), added.created.getTime())
  const listed = await pins.pinsGet({ cid: [known], status: all, name: 'FIRST', match: 'iexact' })
  assert.deepEqual([listed.count, [...listed.results][0].requestid], [1, added.requestid])
  for (const [app, count] of [['a', 1], ['b', 0]]) {
    assert.equal((await pins.pinsGet({ status: all, meta: { app } })).count, count)
  }
  const now = await pins.pinsRequestidPost({ requestid: added.requestid, pin: { cid: known, name: 'second' } })
  assert.notEqual(now.requestid, added.requestid)
  await refused(pins.pinsRequestidGet({ requestid: added.requestid }), 404)
  await pins.pinsRequestidDelete({ requestid: now.requestid })
  await refused(pins.pinsRequestidDelete({ requestid: now.requestid }), 404)
  assert.equal((await pins.pinsGet({ status: all })).count, 0)
  await refused(client('wrong').pinsGet({}), 401)
}

async function walk () {
  const pins = client(paged)
  const seen = new Set()
  let repeated = 0
  let requests = 0
  for (let before; ;) {
    const page = [...(await pins.pinsGet({ status: all, limit: 1000, before })).results]
    requests++
    for (const row of page) {
      repeated += seen.has(row.requestid) ? 1 : 0
      seen.add(row.requestid)
    }
    if (page.length < 1000) {
      break
    }
    before = page[page.length - 1].created
  }
  assert.ok(seen.size >= atLeast, `${seen.size} of ${atLeast}`)
  return { seen: [...seen], repeated, requests }
}

// Helia's ls goes on behind the newest row of a page, where the API goes back in
// time, and so begins anew with the second page: each page is asked for here.
async function walkByHelia (node) {
  const pins = createRemotePins(node, { endpointUrl: base, accessToken: paged })
  const seen = new Set()
  const newest = Math.max(...Object.values(created).map(Date.parse))
  for (let before = new Date(newest + 1); ;) { // newer ones without a name come meanwhile
    let last
    let rows = 0
    for await (const { name } of pins.ls({ status: all, before })) {
      if (seen.has(name)) {
        break // the page was the last one, and ls has begun anew
      }
      if (created[name]) {
        seen.add(last = name)
      }
      if (++rows === 1000) {
        break
      }
    }
    if (rows < 1000) {
      return [...seen]
    }
    before = new Date(created[last])
  }
}

async function helia () {
  const node = await withBitswap(withLibp2pLight(createHeliaLight(), {
    addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
    transports: [tcp()],
    connectionEncrypters: [noise(), tls()],
    streamMuxers: [yamux()],
    services: { identify: identify() }
  })).start()
  try {
    const pins = createRemotePins(node, { endpointUrl: base, accessToken: token, pollInterval: 200 })
    const signal = AbortSignal.timeout(pinnedWithin)
    const cid = await unixfs(node).addBytes(randomBytes(600_000))
    assert.equal(await pins.isPinned(cid), false)
    for await (const done of pins.add(cid, { name: 'from helia', metadata: { a: '1' }, signal })) {
      assert.ok(done.equals(cid))
    }
    assert.equal(await pins.isPinned(cid), true)
    assert.deepEqual((await pins.get(cid)).metadata, { a: '1' })
    const rows = []
    for await (const row of pins.ls({ cid })) {
      rows.push(row)
    }
    assert.deepEqual(rows.map(r => [r.cid.toString(), r.name]), [[cid.toString(), 'from helia']])
    await pins.setMetadata(cid, { a: '2' }) // a replacement: pinned again once it is settled
    while (!await pins.isPinned(cid)) {
      signal.throwIfAborted()
    }
    assert.deepEqual((await pins.get(cid)).metadata, { a: '2' })
    for await (const gone of pins.rm(cid)) {
      assert.ok(gone.equals(cid))
    }
    assert.equal(await pins.isPinned(CID.parse(cid.toString())), false)
    return await walkByHelia(node)
  } finally {
    await node.stop()
  }
}

try {
  await generated()
  const names = await helia()
  // A pipe takes what is written when it has room, and exit would not wait.
  process.stdout.write(JSON.stringify({ ...await walk(), helia: names }) + '\n', () => process.exit(0))
} catch (err) {
  process.stderr.write(String(err?.stack ?? err) + '\n' + (err?.response?.status ?? err?.status ?? '') + '\n')
  process.exit(1)
}
