import type {Job} from '../src/schedule/job.ts'

export default {
  name: 'hourly-refresh',
  schedule: '15 8-20 * * 1-5',
  timeZone: 'America/New_York',
  catchUp: 'none',
  graceMinutes: 20,
  steps: [{do: 'sync'}],
} satisfies Job
