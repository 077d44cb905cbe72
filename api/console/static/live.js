// What moves is loaded again when the node tells that it has changed. Of all tabs of a browser one
// has the event stream, where the browser has locks, and passes on what comes.
import { prepare } from './console.js'

const main = document.querySelector('#main')
const pause = 2000 // milliseconds between two loads at the least
const later = 30000 // until the next try after the node has refused a stream
let seen = main.dataset.seen // what the page shows of the account
const shown = new Map() // id of a region -> its content as the node sent it
let loading = false
let due = false

// The answer to a form has no fingerprint, and stays as it is.
const regions = () => main.dataset.seen ? [...document.querySelectorAll('[data-live]')] : []

// show puts a new version of a region in its place. What was ticked or opened and the focus stay.
function show(region, next) {
  const had = region.contains(document.activeElement) ? document.activeElement : null
  const ticked = new Set([...region.querySelectorAll(':checked')].map((e) => e.value))
  for (const box of next.querySelectorAll('[type=checkbox]')) box.checked = ticked.has(box.value)
  const opened = new Set([...region.querySelectorAll('details[open] > summary')].map((e) => e.textContent))
  for (const summary of next.querySelectorAll('details > summary')) summary.parentElement.open ||= opened.has(summary.textContent)
  region.replaceWith(next)
  prepare(next)
  if (!had) return
  const alike = (e) => e.href === had.href && e.value === had.value && e.dataset.copy === had.dataset.copy && (had.dataset.copy || e.textContent === had.textContent)
  const same = [...next.querySelectorAll('a, button, input, summary')].find(alike)
  ;(same ?? main).focus({ preventScroll: true })
}

const selected = (region) => !getSelection().isCollapsed && getSelection().containsNode(region, true)

async function load() {
  if (document.hidden || loading) {
    due = true
    return
  }
  loading = true
  due = false
  try {
    const answer = await fetch(location.href)
    if (answer.redirected) return ended()
    if (!answer.ok) return
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html')
    seen = page.querySelector('#main').dataset.seen
    for (const region of regions()) {
      const next = page.getElementById(region.id)
      if (!next || next.innerHTML === shown.get(region.id) || selected(region)) continue
      shown.set(region.id, next.innerHTML)
      show(region, next)
    }
  } catch { // the next event tries again
    due = true
  } finally {
    setTimeout(() => {
      loading = false
      if (due) load()
    }, pause)
  }
}

function ended() {
  over = true
  if (document.querySelector('#ended')) return
  const told = document.createElement('p')
  told.id = 'ended'
  told.className = 'problem'
  told.setAttribute('role', 'alert')
  const link = document.createElement('a')
  link.href = `/sign-in?${new URLSearchParams({ to: location.pathname + location.search })}`
  link.textContent = 'Sign in again'
  told.append('Your session has ended. ', link)
  main.prepend(told)
}

function come({ topic, data }) {
  if (topic === 'ended') return ended()
  if (topic === 'account' && data === seen) return
  if (regions().some((region) => region.dataset.live === topic)) load()
}

const channel = new BroadcastChannel('holdfast-live')
channel.onmessage = (e) => come(e.data)

let source = null
let over = false // the session of this page has ended
let left = () => {} // lets another tab listen
function listen() {
  source = new EventSource('/events')
  for (const topic of ['account', 'cluster', 'ended']) {
    source.addEventListener(topic, (e) => {
      const event = { topic, data: e.data }
      channel.postMessage(event)
      come(event)
      if (topic === 'ended') {
        source.close()
        left() // another tab may have a new session
      }
    })
  }
  source.onerror = () => { // else the browser connects again by itself
    if (source.readyState === EventSource.CLOSED && !over) setTimeout(listen, later)
  }
}

document.addEventListener('visibilitychange', () => { if (!document.hidden && due) load() })
if (regions().length) {
  if (navigator.locks) {
    navigator.locks.request('holdfast-live', () => {
      if (over) return
      listen()
      return new Promise((resolve) => { left = resolve })
    })
      .catch(() => {}) // the page is left
  } else {
    const turn = () => {
      if (document.hidden) source?.close()
      else listen()
    }
    document.addEventListener('visibilitychange', turn)
    if (!document.hidden) turn()
  }
}
