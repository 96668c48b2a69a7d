export default {
  name: 'once',
  schedule: '0 0 1 1 *',
  timeZone: 'UTC',
  catchUp: 'none',
  graceMinutes: 1,
  steps: [{do: 'sync'}],
}
