const LABEL = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
const SUBDOMAIN = `${LABEL}(\\.${LABEL})*`;
const subdomainForm = new RegExp(`^${SUBDOMAIN}$`);

/** Why a text is no DNS subdomain (the form of object names), in the real server's words; undefined
 * if it is one. */
export function subdomainComplaint(name: string): string | undefined {
  if (name.length > 253) return 'must be no more than 253 bytes';
  if (subdomainForm.test(name)) return undefined;
  return (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or " +
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', " +
    `regex used for validation is '${SUBDOMAIN}')`
  );
}
