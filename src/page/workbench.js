// The run under way, as it gets on; the page of runs shows itself again once it has ended.
const live = document.querySelector('#live')
let isRunning = live.dataset.running === 'true'
const source = new EventSource('/runs/live')
source.addEventListener('message', ({data}) => {
  const {running, words} = JSON.parse(data)
  live.textContent = words
  live.dataset.running = running
  if (isRunning && !running && location.pathname === '/runs') location.reload()
  isRunning = running
})
addEventListener('pagehide', () => source.close())
