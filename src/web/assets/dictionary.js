const search = document.querySelector('#search')
const entries = [...document.querySelectorAll('.entry')]
const texts = new Map(entries.map((entry) => [entry, entry.textContent.toLowerCase()]))
const none = document.querySelector('#none')

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean)
  let shown = 0
  for (const entry of entries) {
    const isFound = words.every((word) => texts.get(entry).includes(word))
    entry.hidden = !isFound
    for (const link of document.querySelectorAll(`.contents a[href="#${CSS.escape(entry.id)}"]`)) {
      link.hidden = !isFound
    }
    if (isFound) shown += 1
  }
  none.hidden = shown > 0
}

search.addEventListener('input', filter)
addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.target === search) return
  event.preventDefault()
  search.focus()
})

const graph = document.querySelector('#graph')
const nodes = [...graph.querySelectorAll('.node')]
const paths = [...graph.querySelectorAll('polyline')]

function focusOn(name) {
  const near = new Set([name])
  for (const path of paths) {
    const isNear = path.dataset.from === name || path.dataset.to === name
    path.classList.toggle('near', isNear)
    if (isNear) near.add(path.dataset.from).add(path.dataset.to)
  }
  for (const node of nodes) node.classList.toggle('near', near.has(node.dataset.name))
  graph.classList.toggle('focused', name !== undefined)
}

for (const node of nodes) {
  node.addEventListener('pointerenter', () => focusOn(node.dataset.name))
  node.addEventListener('pointerleave', () => focusOn(undefined))
}
