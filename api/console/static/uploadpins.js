// Uploads of files that are pinned, with progress and cancel. Without it the form sends the files by
// itself.

import { bytesText } from './format.js'

const card = document.querySelector('#upload')
const form = card.querySelector('form')
const bar = card.querySelector('progress')
const part = (name) => card.querySelector(`[data-${name}]`)

// byPath orders paths so that everything in one folder stands together, as the node expects it.
function byPath(a, b) {
  const [left, right] = [a.path.split('/'), b.path.split('/')]
  for (let i = 0; i < left.length && i < right.length; i++) {
    if (left[i] !== right[i]) return left[i] < right[i] ? -1 : 1
  }
  return left.length - right.length
}

function ended(text) {
  const focused = part('transfer').contains(document.activeElement)
  part('transfer').hidden = true
  part('summary').textContent = text
  form.querySelector('button').disabled = false
  if (focused) form.querySelector('button').focus()
}

// problemOf is what a page that answers the form says.
function problemOf(text) {
  const page = new DOMParser().parseFromString(text, 'text/html')
  return (page.querySelector('#upload .problem') ?? page.querySelector('main'))?.textContent.trim() || 'the node did not say why'
}

let request = null
part('cancel').addEventListener('click', () => request?.abort())

form.addEventListener('submit', (e) => {
  e.preventDefault()
  const files = [...form.querySelectorAll('[type=file]')].flatMap((input) => Array.from(input.files, (file) => ({ file, path: file.webkitRelativePath || file.name })))
  if (!files.length) return ended('Choose files or a folder first.')
  const body = new FormData()
  for (const name of ['form_token', 'kind', 'name']) body.append(name, form.elements[name].value)
  for (const { file, path } of files.sort(byPath)) body.append('file', file, path)
  request = new XMLHttpRequest()
  request.open('POST', form.action)
  request.upload.onprogress = ({ loaded, total }) => {
    bar.value = total ? loaded / total : 1
    part('progress').textContent = loaded < total ? `${bytesText(loaded)} of ${bytesText(total)}` : 'sent; the node stores it'
  }
  request.onload = () => {
    if (request.status < 400) return location.assign(request.responseURL)
    ended(`Not stored: ${problemOf(request.responseText)}`)
  }
  request.onerror = () => ended('Not stored: the connection to the node ended.')
  request.onabort = () => ended('Cancelled.')
  part('summary').textContent = ''
  part('transfer').hidden = false
  form.querySelector('button').disabled = true
  bar.value = 0
  part('cancel').focus()
  request.send(body)
})
