import { metricsIn, type Registry } from '../runtime/metrics.ts';

export type WebhookMetrics = ReturnType<typeof webhookMetrics>;

/** The metrics of both servers. A sender never chooses the value of a label. */
export function webhookMetrics(registry: Registry) {
  const { counter } = metricsIn(registry);
  return {
    events: counter(
      'sutler_webhook_events_total',
      'Events that POST /events received, by kind of sender and by result: notice, ' +
        'ignored-REASON, duplicate, invalid.',
      ['sender', 'result'],
    ),
    refused: counter(
      'sutler_webhook_requests_refused_total',
      'Requests to POST /events that ingest refused as a whole, by kind of problem.',
      ['reason'],
    ),
    reviews: counter(
      'sutler_admission_reviews_total',
      'Requests to POST /admission, by result: notice, ignored-REASON, lost, refused.',
      ['result'],
    ),
    notices: counter(
      'sutler_webhook_notices_total',
      'Notices from webhooks, by server (events, admission) and by result: stored, lost.',
      ['server', 'result'],
    ),
  };
}
