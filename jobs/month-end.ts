import type {Job} from '../src/schedule/job.ts'

export default {
  name: 'month-end',
  schedule: '0 7 1-10 * *',
  timeZone: 'America/New_York',
  catchUp: 'each',
  graceMinutes: 10_080,
  // Copy this file into LOANTAPE_JOBS_DIR and enable it there once accounting.json has your accounts.
  enabled: false,
  steps: [
    {do: 'close_period', businessDay: 3, holidays: 'us-federal'},
    {do: 'export', profiles: ['quickbooks'], period: 'previous'},
    {
      do: 'export',
      profiles: ['csv'],
      tables: [
        'accounting.journal_line',
        'accounting.loan_register',
        'accounting.tie_out',
        'mart.funded_rollforward',
      ],
      period: 'previous',
    },
  ],
} satisfies Job
