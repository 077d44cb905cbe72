// Copy buttons, and the keys that a person moves with. Every page works without them.

const said = document.createElement('p')
said.className = 'hide'
said.setAttribute('role', 'status')
document.body.append(said)

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text)
  } catch { // a page over plain HTTP has no clipboard
    const field = document.createElement('textarea')
    field.value = text
    field.className = 'hide'
    document.body.append(field)
    field.select()
    document.execCommand('copy')
    field.remove()
    button.focus()
  }
  button.textContent = 'copied'
  said.textContent = 'copied'
  setTimeout(() => { button.textContent = 'copy'; said.textContent = '' }, 2000)
}

// prepare gives a part of the page its copy buttons.
export function prepare(part) {
  for (const button of part.querySelectorAll('[data-copy]')) {
    button.hidden = false
    button.addEventListener('click', () => copy(button, button.dataset.copy))
  }
  for (const all of part.querySelectorAll('[data-all]')) {
    all.hidden = false
    all.addEventListener('change', () => {
      for (const box of all.form.querySelectorAll('[type=checkbox]')) box.checked = all.checked
    })
  }
  for (const text of part.querySelectorAll('[data-copyable]')) {
    const button = document.createElement('button')
    button.type = 'button'
    button.className = 'copy'
    button.textContent = 'copy'
    button.addEventListener('click', () => copy(button, text.textContent))
    text.before(button)
  }
}
prepare(document)

let going = false // g was pressed
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, select, textarea')) return
  const was = going
  going = false
  if (was) {
    document.querySelector(`.side a[data-key="${CSS.escape(e.key)}"]`)?.click()
  } else if (e.key === 'g') {
    going = true
  } else if (e.key === '/') {
    const search = document.querySelector('[data-search]')
    if (search) {
      e.preventDefault()
      search.focus()
    }
  }
})
