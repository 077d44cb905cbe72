// Pays with a stock client of x402: node pay.mjs VERSION KEY METHOD URL TTL [CONTENT] [MAX_BYTES].
// Version 1 is x402-fetch, version 2 is @x402/fetch. CONTENT is a number of bytes, or JSON to send.
// It prints the answer as one line of JSON.
import { privateKeyToAccount } from 'viem/accounts'

const [version, key, method, url, ttl, content, most] = process.argv.slice(2)
const account = privateKeyToAccount(key)
const statuses = [] // of every request that the client sends
const watched = async (input, init) => {
  const response = await fetch(input, init)
  statuses.push(response.status)
  return response
}

let pay
let decode
let name
if (version === '1') {
  const { wrapFetchWithPayment, decodeXPaymentResponse } = await import('x402-fetch')
  pay = wrapFetchWithPayment(watched, account)
  decode = decodeXPaymentResponse
  name = 'X-PAYMENT-RESPONSE'
} else {
  const { wrapFetchWithPayment, x402Client, decodePaymentResponseHeader } = await import('@x402/fetch')
  const { registerExactEvmScheme } = await import('@x402/evm/exact/client')
  const client = new x402Client()
  registerExactEvmScheme(client, { signer: account })
  pay = wrapFetchWithPayment(watched, client)
  decode = decodePaymentResponseHeader
  name = 'PAYMENT-RESPONSE'
}

const headers = { 'Content-Type': 'text/plain' }
if (ttl) headers['X-Holdfast-TTL'] = ttl
if (most) headers['X-Holdfast-Max-Bytes'] = most
let body
if (content?.startsWith('{')) {
  body = content
  headers['Content-Type'] = 'application/json'
} else if (content !== undefined) {
  body = Buffer.alloc(Number(content), 'x')
}
const response = await pay(url, { method, headers, body })
const paid = response.headers.get(name)
console.log(JSON.stringify({
  status: response.status, statuses, body: await response.text(), until: response.headers.get('X-Holdfast-Until'), paid: paid && decode(paid)
}))
