import type {Job} from '../src/schedule/job.ts'

export default {
  name: 'rates',
  schedule: '0 21 * * *',
  timeZone: 'America/New_York',
  catchUp: 'latest',
  graceMinutes: 120,
  steps: [{do: 'ingest_rates'}],
} satisfies Job
