import type {Job} from '../src/schedule/job.ts'

export default {
  name: 'nightly',
  schedule: '30 23 * * *',
  timeZone: 'America/New_York',
  catchUp: 'latest',
  graceMinutes: 360,
  steps: [{do: 'sync'}, {do: 'export', profiles: ['csv', 'parquet']}, {do: 'notify', digest: true}],
} satisfies Job
