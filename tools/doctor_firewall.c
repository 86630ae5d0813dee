/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl doctor: what a firewall of this machine does to a job's results, which are UDP packets
 * to a multicast group. The rules come from nft and iptables-save; the latter's are converted to
 * the former's. Each rule is applied to a packet that is only partly known.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>
#include <linux/capability.h>

#include "tools/doctor.h"

#define GROUPS_FIRST 0xefc00000u /* 239.192.0.0/16 */
#define GROUPS_LAST 0xefc0ffffu
#define DEPTH_MAX 16
#define WORDS_MAX 64

extern char **environ;

/* Result of comparing a rule with the packet. */
enum match {
	MATCH_NO,
	MATCH_MAYBE,
	MATCH_YES
};

enum outcome {
	GOES_ON,
	ACCEPTED,
	DROPPED
};

struct firewall {
	const json_t *objects; /* tables, chains and rules of `nft -j list ruleset`, in order */
	uint16_t udp_port;
};

static const char *
string_of(const json_t *object, const char *key)
{
	const char *string = json_string_value(json_object_get(object, key));

	return string == NULL ? "" : string;
}

static bool
is_one_of(const char *word, const char *const *words)
{
	for (; *words != NULL; words++) {
		if (strcmp(word, *words) == 0)
			return true;
	}
	return false;
}

/* ---------------------------------------------------------------- values */

/* Returns whether numbers from low to high are in the range first to last: all, some or none. */
static enum match
cover(uint32_t low, uint32_t high, uint32_t first, uint32_t last)
{
	if (first > high || last < low)
		return MATCH_NO;
	return first <= low && last >= high ? MATCH_YES : MATCH_MAYBE;
}

/*
 * Reads a port or an address as a number. Returns false for other values, such as the name of a
 * set.
 */
static bool
number_of(const json_t *value, uint32_t *number)
{
	struct in_addr address;

	if (json_is_integer(value)) {
		*number = (uint32_t)json_integer_value(value);
		return true;
	}
	if (!json_is_string(value) || inet_pton(AF_INET, json_string_value(value), &address) != 1)
		return false;
	*number = ntohl(address.s_addr);
	return true;
}

/* Compares numbers from low to high with a number, a range, a prefix or a set of these. */
static enum match
match_numbers(const json_t *right, uint32_t low, uint32_t high)
{
	const json_t *set = json_object_get(right, "set");
	const json_t *range = json_object_get(right, "range");
	const json_t *prefix = json_object_get(right, "prefix");
	enum match best = MATCH_NO;
	const json_t *element;
	uint32_t first, last;
	size_t i;

	if (json_is_array(right))
		set = right;
	if (set != NULL) {
		json_array_foreach(set, i, element) {
			enum match found = match_numbers(element, low, high);

			if (found > best)
				best = found;
		}
		return best;
	}
	if (range != NULL)
		return number_of(json_array_get(range, 0), &first) &&
				       number_of(json_array_get(range, 1), &last)
			       ? cover(low, high, first, last)
			       : MATCH_MAYBE;
	if (prefix != NULL && number_of(json_object_get(prefix, "addr"), &first)) {
		json_int_t len = json_integer_value(json_object_get(prefix, "len"));
		uint32_t mask = len <= 0 ? 0 : UINT32_MAX << (len > 32 ? 0 : 32 - len);

		return cover(low, high, first & mask, first | ~mask);
	}
	return number_of(right, &first) ? cover(low, high, first, first) : MATCH_MAYBE;
}

/* Compares the packet's words with a word or a set of words. */
static enum match
match_words(const json_t *right, const char *const *own)
{
	const json_t *set = json_is_array(right) ? right : json_object_get(right, "set");
	const char *word = json_string_value(right);
	const json_t *element;
	size_t i;

	if (word != NULL)
		return word[0] == '@' ? MATCH_MAYBE : is_one_of(word, own) ? MATCH_YES : MATCH_NO;
	if (set == NULL)
		return MATCH_MAYBE;
	json_array_foreach(set, i, element) {
		enum match found = match_words(element, own);

		if (found != MATCH_NO)
			return found;
	}
	return MATCH_NO;
}

/* ----------------------------------------------------------------- rules */

/*
 * True if the packet has headers of that protocol. A rule on other protocols' fields applies only
 * to their packets; nft does not list this as a condition.
 */
static bool
is_ours(const char *protocol)
{
	static const char *const ours[] = { "", "ether", "ip", "udp", "th", NULL };

	return is_one_of(protocol, ours);
}

static enum match
match_payload(const struct firewall *firewall, const json_t *payload, const json_t *right)
{
	static const char *const ours[] = { "udp", "th", NULL };
	static const char *const protocol[] = { "udp", NULL };
	const char *of = string_of(payload, "protocol");
	const char *field = string_of(payload, "field");

	if (is_one_of(of, ours))
		return strcmp(field, "dport") == 0 || strcmp(field, "sport") == 0
			       ? match_numbers(right, firewall->udp_port, firewall->udp_port)
			       : MATCH_MAYBE;
	if (strcmp(of, "ip") == 0 && strcmp(field, "daddr") == 0)
		return match_numbers(right, GROUPS_FIRST, GROUPS_LAST);
	if (strcmp(of, "ip") == 0 && strcmp(field, "protocol") == 0)
		return match_words(right, protocol);
	return MATCH_MAYBE;
}

/* True if a value is lo, or a set of lo alone. */
static bool
is_loopback(const json_t *right)
{
	const json_t *set = json_object_get(right, "set");

	if (json_array_size(set) == 1)
		right = json_array_get(set, 0);
	return json_is_string(right) && strcmp(json_string_value(right), "lo") == 0;
}

static enum match
match_meta(const char *key, const json_t *right)
{
	static const struct {
		const char *key;
		const char *own[4];
	} known[] = {
		{ "l4proto", { "udp" } },   { "nfproto", { "ipv4" } },
		{ "protocol", { "ip" } },   { "pkttype", { "multicast" } },
		{ "iiftype", { "ether" } },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(key, known[i].key) == 0)
			return match_words(right, known[i].own);
	}
	if (strcmp(key, "iif") == 0 || strcmp(key, "iifname") == 0)
		return is_loopback(right) ? MATCH_NO : MATCH_MAYBE;
	return MATCH_MAYBE;
}

/*
 * Evaluates one comparison. No process here sends to the group: to connection tracking, each of its
 * packets is new, and its address is not translated.
 */
static enum match
match_one(const struct firewall *firewall, const json_t *compared)
{
	static const char *const state[] = { "new", NULL };
	static const char *const translated[] = { "dnat", NULL };
	static const char *const type[] = { "multicast", NULL };
	const json_t *left = json_object_get(compared, "left");
	const json_t *right = json_object_get(compared, "right");
	const json_t *payload = json_object_get(left, "payload");
	const json_t *meta = json_object_get(left, "meta");
	const json_t *ct = json_object_get(left, "ct");
	enum match found = MATCH_MAYBE;

	if (payload != NULL && !is_ours(string_of(payload, "protocol")))
		return MATCH_NO;
	if (payload != NULL)
		found = match_payload(firewall, payload, right);
	else if (meta != NULL)
		found = match_meta(string_of(meta, "key"), right);
	else if (ct != NULL && strcmp(string_of(ct, "key"), "state") == 0)
		found = match_words(right, state);
	else if (ct != NULL && match_words(right, translated) == MATCH_YES)
		found = MATCH_NO;
	else if (strcmp(string_of(json_object_get(left, "fib"), "result"), "type") == 0)
		found = match_words(right, type);
	if (strcmp(string_of(compared, "op"), "!=") == 0)
		return (enum match)(MATCH_YES - found);
	return found;
}

static enum outcome walk(const struct firewall *firewall, const json_t *chain, const char *name,
			 unsigned int depth);

/*
 * Applies a rule to the packet. leaves: set to whether the packet leaves the rest of the rule's
 * chain.
 */
static enum outcome
apply(const struct firewall *firewall, const json_t *rule, unsigned int depth, enum match *leaves)
{
	static const char *const neutral[] = { "counter", "log",     "comment",
					       "mangle",  "notrack", NULL };
	enum match all = MATCH_YES;
	const json_t *expression, *value;
	const char *key;
	size_t i;

	json_array_foreach(json_object_get(rule, "expr"), i, expression) {
		json_object_foreach((json_t *)(uintptr_t)expression, key, value) {
			enum match found = MATCH_MAYBE;

			if (strcmp(key, "accept") == 0 || strcmp(key, "queue") == 0)
				return all == MATCH_NO ? GOES_ON : ACCEPTED;
			if (strcmp(key, "drop") == 0 || strcmp(key, "reject") == 0)
				return all == MATCH_YES ? DROPPED : GOES_ON;
			if (strcmp(key, "return") == 0) {
				*leaves = all;
				return GOES_ON;
			}
			if (strcmp(key, "jump") == 0 || strcmp(key, "goto") == 0) {
				enum outcome outcome = all == MATCH_NO
							       ? GOES_ON
							       : walk(firewall, rule,
								      string_of(value, "target"),
								      depth + 1);

				*leaves = key[0] == 'g' ? all : MATCH_NO;
				return outcome == DROPPED && all != MATCH_YES ? GOES_ON : outcome;
			}
			/*
			 * Only a verdict map by connection states is sure to have no verdict for
			 * new packets.
			 */
			if (strcmp(key, "vmap") == 0 &&
			    json_object_get(json_object_get(value, "key"), "ct") == NULL)
				return all == MATCH_NO ? GOES_ON : ACCEPTED;
			if (strcmp(key, "match") == 0)
				found = match_one(firewall, value);
			else if (is_one_of(key, neutral))
				found = MATCH_YES;
			if (found < all)
				all = found;
		}
	}
	return GOES_ON;
}

/* Applies the rules of a chain to the packet. chain: this chain, or a rule of the same table. */
static enum outcome
walk(const struct firewall *firewall, const json_t *chain, const char *name, unsigned int depth)
{
	enum match left = MATCH_NO;
	const json_t *object;
	size_t i;

	if (depth > DEPTH_MAX)
		return GOES_ON;
	json_array_foreach(firewall->objects, i, object) {
		const json_t *rule = json_object_get(object, "rule");
		enum match leaves = MATCH_NO;
		enum outcome outcome;

		if (rule == NULL || strcmp(string_of(rule, "chain"), name) != 0 ||
		    strcmp(string_of(rule, "table"), string_of(chain, "table")) != 0 ||
		    strcmp(string_of(rule, "family"), string_of(chain, "family")) != 0)
			continue;
		outcome = apply(firewall, rule, depth, &leaves);
		/* A packet that may have left the chain earlier is not certainly dropped. */
		if (outcome == DROPPED && left != MATCH_NO)
			return GOES_ON;
		if (outcome != GOES_ON || leaves == MATCH_YES)
			return outcome;
		if (leaves != MATCH_NO)
			left = leaves;
	}
	return GOES_ON;
}

/*
 * Finds a chain, at a hook that the packet passes, that drops the packet. Returns false if there is
 * none.
 */
static bool
finds_drop(const struct firewall *firewall, char *found)
{
	static const char *const families[] = { "ip", "inet", "netdev", NULL };
	static const char *const hooks[] = { "ingress", "prerouting", "input", NULL };
	const json_t *object;
	size_t i;

	json_array_foreach(firewall->objects, i, object) {
		const json_t *chain = json_object_get(object, "chain");
		const char *name = string_of(chain, "name");
		enum outcome outcome;

		if (chain == NULL || !is_one_of(string_of(chain, "family"), families) ||
		    !is_one_of(string_of(chain, "hook"), hooks))
			continue;
		outcome = walk(firewall, chain, name, 0);
		if (outcome == DROPPED ||
		    (outcome == GOES_ON && strcmp(string_of(chain, "policy"), "drop") == 0)) {
			snprintf(found, DOCTOR_FOUND_LEN, "the chain %s of the table %s drops them",
				 name, string_of(chain, "table"));
			return true;
		}
	}
	return false;
}

/* ------------------------------------------------- output of iptables-save */

/* Converts "5000:6000" to a range, and "5000" to a number. */
static json_t *
port_json(const char *word)
{
	char *end;
	unsigned long first = strtoul(word, &end, 10);

	return *end == ':' ? json_pack("{s:[i,i]}", "range", (int)first,
				       (int)strtoul(end + 1, NULL, 10))
			   : json_integer((json_int_t)first);
}

/* Converts "239.0.0.0/8" to a prefix; an address without a length has 32 bits. */
static json_t *
prefix_json(const char *word)
{
	const char *slash = strchr(word, '/');
	char address[64];

	snprintf(address, sizeof(address), "%.*s", (int)strcspn(word, "/"), word);
	return json_pack("{s:{s:s, s:i}}", "prefix", "addr", address, "len",
			 slash == NULL ? 32 : (int)strtoul(slash + 1, NULL, 10));
}

/* Converts "NEW,ESTABLISHED" to a list in lower case, or a list of ports. */
static json_t *
list_json(char *words, bool ports)
{
	json_t *list = json_array();
	char *more;

	for (char *word = strtok_r(words, ",", &more); word != NULL;
	     word = strtok_r(NULL, ",", &more)) {
		for (char *at = word; *at != '\0'; at++)
			*at = (char)(*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at);
		json_array_append_new(list, ports ? port_json(word) : json_string(word));
	}
	return list;
}

/* Converts an option of iptables to one expression. NULL: the option is no condition. */
static json_t *
expression_json(const char *option, char *value, bool negated)
{
	static const char *const silent[] = { "-m",           "--comment",   "--reject-with",
					      "--log-prefix", "--log-level", NULL };
	static const char *const destination[] = { "--dport", "--dports", NULL };
	static const char *const source[] = { "--sport", "--sports", NULL };
	static const char *const states[] = { "--ctstate", "--state", NULL };
	const char *op = negated ? "!=" : "==";
	json_t *left = NULL;
	json_t *right = NULL;

	if (is_one_of(option, silent))
		return NULL;
	if (is_one_of(option, destination) || is_one_of(option, source)) {
		left = json_pack("{s:{s:s, s:s}}", "payload", "protocol", "th", "field",
				 option[2] == 'd' ? "dport" : "sport");
		right = list_json(value, true);
	} else if (strcmp(option, "-d") == 0) {
		left = json_pack("{s:{s:s, s:s}}", "payload", "protocol", "ip", "field", "daddr");
		right = prefix_json(value);
	} else if (is_one_of(option, states)) {
		left = json_pack("{s:{s:s}}", "ct", "key", "state");
		right = list_json(value, false);
	} else if (strcmp(option, "-p") == 0 || strcmp(option, "-i") == 0 ||
		   strcmp(option, "--pkt-type") == 0) {
		left = json_pack("{s:{s:s}}", "meta", "key",
				 option[1] == 'p'   ? "l4proto"
				 : option[1] == 'i' ? "iifname"
						    : "pkttype");
		right = json_string(value);
	} else {
		return json_pack("{s:n}", "xt");
	}
	return json_pack("{s:{s:s, s:o, s:o}}", "match", "op", op, "left", left, "right", right);
}

static json_t *
verdict_json(const char *option, const char *target)
{
	static const struct {
		const char *target;
		const char *key;
	} verdicts[] = { { "ACCEPT", "accept" }, { "DROP", "drop" },    { "REJECT", "reject" },
			 { "RETURN", "return" }, { "LOG", "log" },      { "NFLOG", "log" },
			 { "NFQUEUE", "queue" }, { "MARK", "counter" }, { "CT", "counter" } };

	for (size_t i = 0; i < sizeof(verdicts) / sizeof(verdicts[0]); i++) {
		if (strcmp(target, verdicts[i].target) == 0)
			return json_pack("{s:n}", verdicts[i].key);
	}
	return json_pack("{s:{s:s}}", option[1] == 'g' ? "goto" : "jump", "target", target);
}

/* Converts "-A CHAIN OPTION VALUE ... -j TARGET" to a rule. words: n of them. */
static json_t *
rule_json(const char *table, char **words, size_t n)
{
	json_t *expressions = json_array();
	bool negated = false;

	for (size_t i = 2; i < n; i++) {
		const char *option = words[i];
		/* An option without a value is followed by another option, or by "!". */
		bool has_value = i + 1 < n && words[i + 1][0] != '-' && words[i + 1][0] != '!';
		char none[1] = "";
		char *value = has_value ? words[++i] : none;
		json_t *expression;

		if (strcmp(option, "!") == 0) {
			negated = true;
			continue;
		}
		expression = strcmp(option, "-j") == 0 || strcmp(option, "-g") == 0
				     ? verdict_json(option, value)
				     : expression_json(option, value, negated);
		negated = false;
		if (expression != NULL)
			json_array_append_new(expressions, expression);
	}
	return json_pack("{s:{s:s, s:s, s:s, s:o}}", "rule", "family", "ip", "table", table,
			 "chain", n > 1 ? words[1] : "", "expr", expressions);
}

/* Converts ":INPUT DROP [0:0]" to a chain, with its hook if the packet passes it. */
static json_t *
chain_json(const char *table, const char *name, const char *policy)
{
	const char *hook = strcmp(name, "INPUT") == 0        ? "input"
			   : strcmp(name, "PREROUTING") == 0 ? "prerouting"
							     : "";

	return json_pack("{s:{s:s, s:s, s:s, s:s, s:s}}", "chain", "family", "ip", "table", table,
			 "name", name, "hook", hook, "policy",
			 strcmp(policy, "DROP") == 0 ? "drop" : "accept");
}

/* Splits a line at its blanks; a quoted part is one word. */
static size_t
split(char *line, char **words)
{
	size_t n = 0;

	while (n < WORDS_MAX) {
		char stop = ' ';

		line += strspn(line, " \n");
		if (*line == '\0')
			break;
		if (*line == '"')
			stop = *line++;
		words[n++] = line;
		while (*line != '\0' && *line != stop && *line != '\n')
			line++;
		if (*line != '\0')
			*line++ = '\0';
	}
	return n;
}

static json_t *
read_iptables(FILE *file)
{
	json_t *objects = json_array();
	char table[64] = "";
	char line[4096];

	while (fgets(line, sizeof(line), file) != NULL) {
		char *words[WORDS_MAX];
		size_t n = split(line, words);

		if (n == 0)
			continue;
		if (words[0][0] == '*')
			snprintf(table, sizeof(table), "%s", words[0] + 1);
		else if (words[0][0] == ':' && n > 1)
			json_array_append_new(objects, chain_json(table, words[0] + 1, words[1]));
		else if (strcmp(words[0], "-A") == 0)
			json_array_append_new(objects, rule_json(table, words, n));
	}
	return objects;
}

static json_t *
read_nft(FILE *file)
{
	json_t *whole = json_loadf(file, 0, NULL);
	json_t *objects = json_incref(json_object_get(whole, "nftables"));

	json_decref(whole);
	return objects;
}

/* -------------------------------------------------------------- programs */

/* Starts a program of the system. file: set to read its output. Returns its process, or -1. */
static pid_t
start(const char *path, char *const *arguments, FILE **file)
{
	posix_spawn_file_actions_t actions;
	pid_t child = -1;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (posix_spawn(&child, path, &actions, NULL, arguments, environ) != 0)
		child = -1;
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	*file = child < 0 ? NULL : fdopen(ends[0], "r");
	if (*file == NULL)
		close(ends[0]);
	return child;
}

/* Returns the firewall's rules from a program's output; NULL if the program is missing or fails. */
static json_t *
rules_of(const struct doctor *doctor, char *const *arguments, json_t *(*read)(FILE *file))
{
	static const char *const places[] = { "usr/sbin", "sbin", "usr/bin" };
	json_t *objects = NULL;
	char path[PATH_MAX] = "";
	FILE *file = NULL;
	int status = 0;
	pid_t child;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s/%s", doctor->root, places[i], arguments[0]);
		if (access(path, X_OK) == 0)
			break;
	}
	child = start(path, arguments, &file);
	if (child < 0)
		return NULL;
	if (file != NULL) {
		objects = read(file);
		fclose(file);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0)
		return objects;
	json_decref(objects);
	return NULL;
}

DOCTOR_LOOK(doctor_firewall)
{
	char *const nft[] = { (char[]){ "nft" }, (char[]){ "-j" }, (char[]){ "list" },
			      (char[]){ "ruleset" }, NULL };
	char *const iptables[] = { (char[]){ "iptables-save" }, NULL };
	enum doctor_state state = DOCTOR_NOTE;

	(void)check;
	(void)interface;
	if (!doctor_has_capability(doctor, CAP_NET_ADMIN)) {
		snprintf(found, DOCTOR_FOUND_LEN, "its rules can't be seen without CAP_NET_ADMIN");
		return DOCTOR_NOTE;
	}
	snprintf(found, DOCTOR_FOUND_LEN,
		 "its rules can't be seen: neither nft nor iptables-save tells them");
	for (int i = 0; i < 2 && state != DOCTOR_WARNING; i++) {
		json_t *objects = i == 0 ? rules_of(doctor, nft, read_nft)
					 : rules_of(doctor, iptables, read_iptables);
		struct firewall firewall = { .objects = objects, .udp_port = doctor->udp_port };

		if (objects == NULL)
			continue;
		if (finds_drop(&firewall, found)) {
			state = DOCTOR_WARNING;
		} else {
			snprintf(found, DOCTOR_FOUND_LEN, "no rule that surely drops them");
			state = DOCTOR_OK;
		}
		json_decref(objects);
	}
	return state;
}
